"""`mrtf compare --holdout`: a comparison on data whose server has no labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mrtf_fedml
from mrtf_fedml.cli import main
from mrtf_fedml.config import DataSettings
from mrtf_fedml.data import load_source
from mrtf_fedml.experiments.report import holdout_notes
from tests.conftest import small_config, write_yaml

DIGITS = load_source(DataSettings(dataset="digits"))


def holdout_config(folder: Path, labels: bool = False, **changes: Any) -> dict[str, Any]:
    arrays = {"x_train": DIGITS.x_train, "y_train": DIGITS.y_train, "x_test": DIGITS.x_test}
    np.savez(folder / "digits.npz", **arrays, **({"y_test": DIGITS.y_test} if labels else {}))
    own = {"dataset": "npz", "data_file": str(folder / "digits.npz"), "model": "mlp", "hidden_size": 64}
    return small_config(**own, **changes)


def test_compare_without_labels_is_refused_before_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "compare",
        "--cf",
        str(write_yaml(tmp_path / "own.yaml", holdout_config(tmp_path))),
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(words) == 2
    assert "--holdout 0.2" in capsys.readouterr().err
    silos = ["--set", "training_type=cross_silo", "--set", "backend=GRPC"]
    assert main([*words, *silos, "--holdout", "0.2"]) == 2
    assert "may not leave their parties" in capsys.readouterr().err
    assert main([*words, "--holdout", "1.5"]) == 2
    assert "data_args.holdout is 1.5" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_page_with_holdout_names_its_size_and_its_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_yaml(tmp_path / "own.yaml", holdout_config(tmp_path, comm_round=1))
    words = ["compare", "--cf", str(file), "--seeds", "1", "--algorithms", "FedAvg", "--out", str(tmp_path / "out")]
    assert main([*words, "--holdout", "0.2"]) == 0
    output = capsys.readouterr().out
    page = (tmp_path / "out" / "comparison.html").read_text()
    for text in (output, page):
        assert "20% of each client" in text
        assert "replace the server" in text
        assert "area under the curve" in text
    assert "in the server&#x27;s set" in page


def test_accuracy_on_holdout_is_close_to_true_accuracy(tmp_path: Path) -> None:
    """The holdout has 239 samples: 0.1 is three standard errors, plus the effect of a fifth fewer training samples."""
    config = holdout_config(
        tmp_path, labels=True, comm_round=8, epochs=4, client_num_per_round=8, partition_method="iid"
    )
    for algorithm in ("FedAvg", "MrTF"):
        true, mock = (
            mrtf_fedml.run(
                config,
                algorithm=algorithm,
                progress=False,
                run_dir=str(tmp_path / f"{algorithm}{share}"),
                holdout=share,
            )
            for share in (None, 0.2)
        )
        assert true.accuracy is not None
        assert mock.accuracy == pytest.approx(true.accuracy, abs=0.1)
        assert mock.summary["holdout_samples"] == len(mock.labels) == 240
        assert true.accuracy > 0.3, "guessing is 0.1"


def test_holdout_notes_name_a_difference_only_where_there_is_one() -> None:
    seen = {
        "held_out": 20,
        "training": 80,
        "clients": 4,
        "server": 50,
        "class_names": ["cat", "dog"],
        "class_frequencies_holdout": [0.5, 0.5],
        "class_frequencies_server": [0.9, 0.1],
        "separability_auc": 0.97,
        "shifted_features": [["age", 2.5]],
    }
    notes = " ".join(holdout_notes([seen], 0.2))
    assert "different kinds of data" in notes
    assert "age by 2.5 standard deviations" in notes
    assert "'cat' 50.0 % against 90.0 %" in notes
    alike = " ".join(holdout_notes([{**seen, "separability_auc": 0.5, "class_frequencies_server": [0.5, 0.5]}], 0.2))
    assert "the two sets are alike" in alike
    assert "other class shares" not in alike
