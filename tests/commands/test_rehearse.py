"""`mrtf compare --rehearse`: which algorithm is better on a scene whose server has no labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mrtf_fedml
from mrtf_fedml.cli import main
from mrtf_fedml.data import load_source
from mrtf_fedml.experiments.rehearsal import rehearsal_notes
from mrtf_fedml.settings import DataSettings
from tests.conftest import small_config, write_yaml

DIGITS = load_source(DataSettings(dataset="digits"))


def scene(folder: Path, labels: bool = False, **changes: Any) -> dict[str, Any]:
    arrays = {"x_train": DIGITS.x_train, "y_train": DIGITS.y_train, "x_test": DIGITS.x_test}
    np.savez(folder / "digits.npz", **arrays, **({"y_test": DIGITS.y_test} if labels else {}))
    own = {"dataset": "npz", "data_file": str(folder / "digits.npz"), "model": "mlp", "hidden_size": 64}
    return small_config(**own, **changes)


def test_without_labels_it_refuses_before_anything_trains_and_names_the_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "--cf", str(write_yaml(tmp_path / "own.yaml", scene(tmp_path))), "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "--rehearse 0.2" in capsys.readouterr().err
    silos = ["--set", "training_type=cross_silo", "--set", "backend=GRPC"]
    assert main([*words, *silos, "--rehearse", "0.2"]) == 2
    assert "may not leave their parties" in capsys.readouterr().err
    assert main([*words, "--rehearse", "1.5"]) == 2
    assert "data_args.rehearse is 1.5" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_page_says_what_was_rehearsed_and_how_it_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_yaml(tmp_path / "own.yaml", scene(tmp_path, comm_round=1))
    words = ["compare", "--cf", str(file), "--seeds", "1", "--algorithms", "FedAvg", "--out", str(tmp_path / "out")]
    assert main([*words, "--rehearse", "0.2"]) == 0
    told = capsys.readouterr().out
    page = (tmp_path / "out" / "comparison.html").read_text()
    for text in (told, page):
        assert "20% of each client" in text
        assert "stood in for the server" in text
        assert "area under the curve" in text
    assert "in the server&#x27;s own set" in page


def test_the_rehearsed_accuracy_is_near_the_true_one(tmp_path: Path) -> None:
    """The stand-in has 239 samples: 0.1 is three of its standard errors, and a fifth fewer samples to learn from."""
    config = scene(tmp_path, labels=True, comm_round=8, epochs=4, client_num_per_round=8, partition_method="iid")
    for algorithm in ("FedAvg", "MrTF"):
        true, mock = (
            mrtf_fedml.run(
                config,
                algorithm=algorithm,
                progress=False,
                run_dir=str(tmp_path / f"{algorithm}{share}"),
                rehearse=share,
            )
            for share in (None, 0.2)
        )
        assert true.accuracy is not None
        assert mock.accuracy == pytest.approx(true.accuracy, abs=0.1)
        assert mock.summary["rehearsed"] == len(mock.labels) == 240
        assert true.accuracy > 0.3, "guessing is 0.1"


def test_a_stand_in_that_is_unlike_is_said_to_be() -> None:
    seen = {
        "held_out": 20,
        "kept": 80,
        "clients": 4,
        "real": 50,
        "class_names": ["cat", "dog"],
        "shares_rehearsed": [0.5, 0.5],
        "shares_real": [0.9, 0.1],
        "told_apart": 0.97,
        "far_features": [["age", 2.5]],
    }
    told = " ".join(rehearsal_notes([seen], 0.2))
    assert "another kind of data" in told
    assert "age by 2.5 deviations" in told
    assert "'cat' 50.0 % against 90.0 %" in told
    alike = " ".join(rehearsal_notes([{**seen, "told_apart": 0.5, "shares_real": [0.5, 0.5]}], 0.2))
    assert "they are of a kind" in alike
    assert "other shares" not in alike
