"""`mrtf ask`: the samples to label, in a file that a run then uses."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mrtf_fedml.cli import main
from tests.conftest import output_bytes, small_config, write_yaml

SETTINGS: dict[str, Any] = {"comm_round": 1, "preset": "tuned", "server_samples": 120, "refine_steps": 20}


def run(folder: Path, name: str, **changes: Any) -> Path:
    config = small_config(run_dir=str(folder / name), **{**SETTINGS, **changes})
    assert main(["run", "--cf", str(write_yaml(folder / f"{name}.yaml", config))]) == 0
    return folder / name


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def fill(file: Path, labels: dict[int, str]) -> None:
    """Write these labels, by row, into the file."""
    asked = rows(file)
    for row, label in labels.items():
        asked[row]["label"] = label
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, asked[0].keys())
        writer.writeheader()
        writer.writerows(asked)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("ask"), "run")


def test_ask_writes_the_samples_of_lowest_confidence(finished: Path, tmp_path: Path) -> None:
    file = tmp_path / "ask.csv"
    assert main(["ask", str(finished), "--n", "5", "--out", str(file)]) == 0
    lowest = np.argsort(np.load(finished / "probabilities.npy").max(axis=1), kind="stable")[:5]
    asked, predictions = rows(file), rows(finished / "predictions.csv")
    assert [int(row["index"]) for row in asked] == lowest.tolist()
    for row in asked:
        predicted = predictions[int(row["index"])]
        assert (row["id"], row["prediction"], row["label"]) == (predicted["id"], predicted["class_name"], "")
        assert row["probability"] == (predicted["probability_correct"] or predicted["confidence"])
        assert row["prediction"] in row["reason"]


def test_filled_file_resumes_a_finished_run_as_if_given_from_the_start(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished = Path(shutil.copytree(finished, tmp_path / "copy"))
    file = tmp_path / "ask.csv"
    assert main(["ask", str(finished), "--n", "6", "--out", str(file)]) == 0
    assert f"--set labels_file={file}" in capsys.readouterr().out
    fill(file, {0: "3", 1: "4", 2: "5"})
    plain = output_bytes(finished)
    given = {int(row["index"]): row["label"] for row in rows(file) if row["label"]}
    assert main(["run", "--resume", str(finished), "--set", f"labels_file={file}"]) == 0
    predictions = rows(finished / "predictions.csv")
    for index, label in given.items():
        row = predictions[index]
        assert (row["class_name"], row["decision"], row["prediction_set"]) == (label, label, label)
        assert float(row["probability_correct"]) == float(row["confidence"]) == 1.0
    summary = json.loads((finished / "summary.json").read_text())
    assert (summary["labels_given"], summary["labels_random"]) == (3, 0)
    assert output_bytes(finished) == output_bytes(run(tmp_path, "fresh", labels_file=str(file)))
    assert output_bytes(finished)[1] != plain[1], "the model has learnt the labels"
    # Asked again, the samples with a label are not repeated; with the same labels there is nothing left to do.
    again = tmp_path / "again.csv"
    assert main(["ask", str(finished), "--n", "120", "--out", str(again)]) == 0
    assert {int(row["index"]) for row in rows(again)} == set(range(120)) - set(given)
    assert main(["run", "--resume", str(finished)]) == 2


def test_random_samples_are_marked_and_estimate_the_accuracy(tmp_path: Path) -> None:
    # FedAvg's clients do not validate, so that the labels alone give an estimate.
    plain = run(tmp_path, "plain", federated_optimizer="FedAvg", preset=None)
    file = tmp_path / "ask.csv"
    assert main(["ask", str(plain), "--n", "30", "--random", "--out", str(file)]) == 0
    assert {row["reason"] for row in rows(file)} == {"random"}
    predictions = {row["index"]: row["class_name"] for row in rows(plain / "predictions.csv")}
    # 24 of 30 as predicted, 6 otherwise.
    labels = [predictions[row["index"]] for row in rows(file)]
    fill(file, {k: label if k < 24 else str((int(label) + 1) % 10) for k, label in enumerate(labels)})
    assert main(["run", "--resume", str(plain), "--set", f"labels_file={file}"]) == 0
    summary = json.loads((plain / "summary.json").read_text())
    assert (summary["labels_random"], summary["labels_random_correct"]) == (30, 24)
    assert summary["estimated_accuracy"] == pytest.approx((30 + 90 * 0.8) / 120)
    low, high = summary["estimated_accuracy_interval"]
    assert low < summary["estimated_accuracy"] < high
    assert summary["estimate_condition"] is None, "the file says that they were drawn at random"
    report = (plain / "report.html").read_text()
    assert "30 of the 120 samples have the label that was given for them" in report


@pytest.mark.parametrize(
    ("arguments", "named"), [(["--n", "0"], "--n"), ([], "exists"), (["--out", "no/such/ask.csv"], "ask.csv")]
)
def test_unusable_requests_end_with_code_2(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    named: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ask.csv").touch()
    assert main(["ask", str(finished), *arguments]) == 2
    assert named in capsys.readouterr().err
