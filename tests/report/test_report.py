"""Complete reports of all kinds of run directories."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mrtf_fedml.errors import UserError
from mrtf_fedml.report import write_report

from .page_reader import read
from .runs import NOT_SCORED, add_everything, line, write_run


def test_report_of_a_labelled_run(tmp_path: Path) -> None:
    directory, evaluator = write_run(tmp_path / "run")
    path = write_report(directory, torch.rand(40, 1, 8, 8), evaluator)
    assert path == tmp_path / "run" / "report.html"
    reader = read(path)
    assert reader.tags.count("svg") == 5
    assert reader.tags.count("img") == 24 + 6, "the least certain, and six of them on the first screen"
    for words in (
        "40 samples labelled: digits",
        "Check these first",
        "Training details",
        "aggregated model: 0.46",
        "refined model",
        "Confusion",
        "preset tuned",
        "dataset: digits",
    ):
        assert words in reader.text


def test_equal_run_directories_give_equal_reports(tmp_path: Path) -> None:
    pages = []
    for name in ("one", "two"):
        directory, evaluator = write_run(tmp_path / name)
        pages.append(write_report(directory, torch.ones(40, 3, 4, 4), evaluator).read_bytes())
    assert pages[0] == pages[1]


def test_report_links_refer_to_existing_anchors(tmp_path: Path) -> None:
    directory, evaluator = write_run(tmp_path / "run")
    reader = read(write_report(directory, None, evaluator))
    inner = {address[1:] for address in reader.addresses if address.startswith("#")}
    assert inner <= set(reader.ids)


KINDS: dict[str, dict[str, Any]] = {
    "no round": {"metrics": []},
    "one round": {"metrics": [line(0)]},
    "no labels": {"metrics": [line(0, **NOT_SCORED), line(1, **NOT_SCORED)], "labelled": False},
    "every fifth round scored": {
        "metrics": [line(number, **({} if number % 5 == 0 else NOT_SCORED)) for number in range(12)]
    },
    "no losses": {"metrics": [line(number, train_loss=None) for number in range(2)]},
    "a loss of nan": {"metrics": [line(0, train_loss=float("nan"))]},
    "300 rounds": {"metrics": [line(number) for number in range(300)]},
    "one sample": {"samples": 1},
    "one sample, one class": {"samples": 1, "classes": 1},
    "two classes": {"classes": 2},
    "62 classes": {"classes": 62, "samples": 200},
    "100 classes": {"classes": 100, "samples": 300},
    "not ended": {"ended": False},
    "not begun": {"ended": False, "metrics": []},
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_report_of_runs_of_every_size(tmp_path: Path, kind: dict[str, Any]) -> None:
    for shape in ((1, 8, 8), (3, 4, 6), (5,), None):
        directory, evaluator = write_run(tmp_path / f"inputs of {shape}", **kind)
        inputs = None if shape is None else torch.rand(kind.get("samples", 40), *shape)
        reader = read(write_report(directory, inputs, evaluator))
        scored = any(entry["acc"] is not None for entry in directory.read_metrics())
        assert ("No round was scored" in reader.text) == (not scored), f"inputs of {shape}"
        assert ("Least certain" in reader.text) == kind.get("ended", True), f"inputs of {shape}"
        samples = kind.get("samples", 40) if kind.get("ended", True) and shape and len(shape) == 3 else 0
        shown = min(24, samples) + min(6, samples)
        assert reader.tags.count("img") == shown, f"inputs of {shape}"


def test_report_without_labels(tmp_path: Path) -> None:
    directory, _ = write_run(tmp_path / "run", labelled=False, metrics=[line(0, **NOT_SCORED)])
    text = read(write_report(directory, None, None)).text
    assert "The true labels are not known" in text
    assert "Right and wrong" not in text


def test_stored_scores_are_used_without_evaluator(tmp_path: Path) -> None:
    directory, evaluator = write_run(tmp_path / "run")
    with_evaluator = write_report(directory, None, evaluator).read_text()
    assert write_report(directory, None, None).read_text() == with_evaluator


def test_report_escapes_all_strings(tmp_path: Path) -> None:
    bad = "<script>alert('x')</script>&\"$a_{b}$"
    names = [f"{bad}{number}" for number in range(3)]
    directory, evaluator = write_run(
        tmp_path / "run",
        classes=3,
        names=names,
        config={"data_args": {"dataset": bad}, "train_args": {"federated_optimizer": bad}},
        dataset=bad,
        algorithm=bad,
        preset=bad,
    )
    logits = torch.eye(3)[torch.arange(40) % 3]
    directory.write_predictions(logits, [bad] * 40, names)
    for inputs in (None, torch.rand(40, 1, 4, 4)):
        reader = read(write_report(directory, inputs, evaluator))
        assert bad in reader.text


def test_report_shows_class_names_of_any_language(tmp_path: Path) -> None:
    directory, evaluator = write_run(tmp_path / "run", classes=2, names=["猫", "собака"])
    assert "猫" in read(write_report(directory, None, evaluator)).text


def test_report_redacts_secrets(tmp_path: Path) -> None:
    config = {"tracking_args": {"wandb_key": "abc123", "s3": {"CN_S3_SAK": "def456"}, "run_name": "mine"}}
    directory, evaluator = write_run(tmp_path / "run", config=config)
    page = write_report(directory, None, evaluator).read_text()
    assert "abc123" not in page
    assert "def456" not in page
    assert "run_name: mine" in page


def test_inputs_of_another_size_raise(tmp_path: Path) -> None:
    directory, _ = write_run(tmp_path / "run")
    with pytest.raises(UserError, match=r"41 samples but the run .* labelled 40"):
        write_report(directory, torch.rand(41, 5), None)


def test_report_imports_no_matplotlib() -> None:
    code = (
        "import sys, mrtf_fedml.report;"
        "early = [name for name in sys.modules if name.startswith('mrtf_fedml.report.')];"
        "import mrtf_fedml.report.page, mrtf_fedml.report.multi_run; print(early, 'matplotlib' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[] False"


def test_report_shows_all_optional_files(tmp_path: Path) -> None:
    metrics = [line(number, acc_mine=0.5, mine_norm=number, excluded_clients={"3": "too late"}) for number in range(3)]
    directory, evaluator = write_run(
        tmp_path / "run", metrics=metrics, samples=60, warnings=["One class is empty."], device="cuda:0"
    )
    add_everything(directory)
    reader = read(write_report(directory, torch.rand(60, 1, 8, 8), evaluator))
    for words in (
        "One class is empty.",
        "too late",
        "· cuda:0 ·",
        "Metrics of the algorithm",
        "Mine norm",
        "train_args.learning_rate = 0.05",
        "Agreement of the teachers",
        "agreement 0.",
        "Expected calibration error",
        "Feature map",
        "Data of the clients",
    ):
        assert words in reader.text
    assert {address[1:] for address in reader.addresses if address.startswith("#")} == set(reader.ids)


def test_report_without_data_lacks_only_sample_images(tmp_path: Path) -> None:
    directory, evaluator = write_run(tmp_path / "run")
    whole = read(write_report(directory, torch.rand(40, 1, 4, 4), evaluator))
    assert whole.tags.count("img") == 24 + 6
    again = read(write_report(directory, None, None))
    assert again.tags.count("img") == 0
    for words in ("Confusion", "Expected calibration error"):
        assert words in again.text


def test_stored_scores_of_other_predictions_are_ignored(tmp_path: Path) -> None:
    directory, evaluator = write_run(tmp_path / "run")
    write_report(directory, None, evaluator)
    summary = json.loads((directory.path / "summary.json").read_text())
    directory.write_json("summary.json", {**summary, "accuracy": 0.99})
    text = read(write_report(directory, None, None)).text
    assert "Accuracy: 0.99" in text
    assert "Recall" in text
    assert "Confusion" not in text


def test_arrays_of_other_predictions_are_ignored(tmp_path: Path) -> None:
    directory, evaluator = write_run(tmp_path / "run")
    add_everything(directory)
    np.save(directory.path / "agreement.npy", np.ones(39))
    text = read(write_report(directory, None, evaluator)).text
    assert "Agreement of the teachers" not in text
    assert "Feature map" in text


def test_report_of_minimal_metrics(tmp_path: Path) -> None:
    bare = {
        "round": 0, "clients": [0], "excluded_clients": {}, "train_loss": None, "client_seconds": 1.0,
        "server_seconds": 0.0, "uplink_bytes": 1, "downlink_bytes": 1, "acc": 0.5,
    }  # fmt: skip
    directory, evaluator = write_run(tmp_path / "run", metrics=[bare])
    assert "final model" in read(write_report(directory, None, evaluator)).text
