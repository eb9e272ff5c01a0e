from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mrtf_fedml.data.stand_in import main


def test_the_digits_are_dealt_to_writers_who_know_few_classes(tmp_path: Path) -> None:
    assert main([str(tmp_path / "data"), "--clients", "20"]) == 0
    parts = {
        part: json.loads((tmp_path / "data/MNIST" / part / "all_data.json").read_text()) for part in ("train", "test")
    }
    assert [sum(parts[part]["num_samples"]) for part in ("train", "test")] == [1198, 599]
    for content in parts.values():
        assert len(content["users"]) == 20
        for own in content["user_data"].values():
            assert np.shape(own["x"]) == (len(own["y"]), 784)
            assert 0 <= np.min(own["x"]) < np.max(own["x"]) <= 1
    known = [len(set(own["y"])) for own in parts["train"]["user_data"].values()]
    assert 3 <= min(known) <= max(known) <= 6


def test_what_is_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "MNIST.zip").write_text("the real one")
    assert main([str(tmp_path), "--clients", "2"]) == 0
    assert "is there already" in capsys.readouterr().out
    assert [file.name for file in tmp_path.iterdir()] == ["MNIST.zip"]


def test_more_writers_than_digits_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--clients", "1000"]) == 2
    assert "there are digits for 1 to 399" in capsys.readouterr().err
