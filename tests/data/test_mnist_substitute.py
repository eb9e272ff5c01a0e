from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mrtf_fedml.data.mnist_substitute import main


def test_mnist_substitute_has_writers_with_few_classes(tmp_path: Path) -> None:
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


def test_existing_mnist_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "MNIST.zip").write_text("the real one")
    assert main([str(tmp_path), "--clients", "2"]) == 0
    assert "exists already" in capsys.readouterr().out
    assert [file.name for file in tmp_path.iterdir()] == ["MNIST.zip"]


def test_more_writers_than_digits_raises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--clients", "1000"]) == 2
    assert "1 to 399" in capsys.readouterr().err
