"""The whole page, from folders of every kind."""

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


def test_the_page_tells_of_a_labelled_run(tmp_path: Path) -> None:
    store, examiner = write_run(tmp_path / "run")
    path = write_report(store, torch.rand(40, 1, 8, 8), examiner)
    assert path == tmp_path / "run" / "report.html"
    reader = read(path)
    assert reader.tags.count("svg") == 5
    assert reader.tags.count("img") == 24
    for words in (
        "MrTF labelled 40 samples of digits",
        "stood at 0.46",
        "refined model",
        "Confusion",
        "preset of settings tuned",
        "dataset: digits",
    ):
        assert words in reader.text


def test_equal_folders_make_equal_files(tmp_path: Path) -> None:
    pages = []
    for name in ("one", "two"):
        store, examiner = write_run(tmp_path / name)
        pages.append(write_report(store, torch.ones(40, 3, 4, 4), examiner).read_bytes())
    assert pages[0] == pages[1]


def test_what_charts_refer_to_is_there_and_is_theirs(tmp_path: Path) -> None:
    store, examiner = write_run(tmp_path / "run")
    reader = read(write_report(store, None, examiner))
    inner = {address[1:] for address in reader.addresses if address.startswith("#")}
    assert inner <= set(reader.ids)


KINDS: dict[str, dict[str, Any]] = {
    "no round": {"metrics": []},
    "one round": {"metrics": [line(0)]},
    "no labels": {"metrics": [line(0, **NOT_SCORED), line(1, **NOT_SCORED)], "labelled": False},
    "every fifth round scored": {
        "metrics": [line(number, **({} if number % 5 == 0 else NOT_SCORED)) for number in range(12)]
    },
    "no losses": {"metrics": [line(number, local_loss=None, local_weight=None) for number in range(2)]},
    "a loss of nan": {"metrics": [line(0, local_loss=float("nan"))]},
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
def test_runs_of_every_size(tmp_path: Path, kind: dict[str, Any]) -> None:
    for shape in ((1, 8, 8), (3, 4, 6), (5,), None):
        store, examiner = write_run(tmp_path / f"inputs of {shape}", **kind)
        inputs = None if shape is None else torch.rand(kind.get("samples", 40), *shape)
        reader = read(write_report(store, inputs, examiner))
        scored = any(entry["acc"] is not None for entry in store.read_metrics())
        assert ("No round was scored" in reader.text) == (not scored), f"inputs of {shape}"
        assert ("Least certain" in reader.text) == kind.get("ended", True), f"inputs of {shape}"
        shown = min(24, kind.get("samples", 40)) if kind.get("ended", True) and shape and len(shape) == 3 else 0
        assert reader.tags.count("img") == shown, f"inputs of {shape}"


def test_a_run_without_labels_says_so(tmp_path: Path) -> None:
    store, _ = write_run(tmp_path / "run", labelled=False, metrics=[line(0, **NOT_SCORED)])
    text = read(write_report(store, None, None)).text
    assert "how many are right is not known" in text
    assert "Right and wrong" not in text


def test_the_marks_are_kept_for_where_no_examiner_is_given(tmp_path: Path) -> None:
    store, examiner = write_run(tmp_path / "run")
    with_examiner = write_report(store, None, examiner).read_text()
    assert write_report(store, None, None).read_text() == with_examiner


def test_whatever_a_run_brings_is_escaped(tmp_path: Path) -> None:
    bad = "<script>alert('x')</script>&\"$a_{b}$"
    names = [f"{bad}{number}" for number in range(3)]
    store, examiner = write_run(
        tmp_path / "run",
        classes=3,
        names=names,
        config={"data_args": {"dataset": bad}, "train_args": {"federated_optimizer": bad}},
        dataset=bad,
        algorithm=bad,
        preset=bad,
    )
    logits = torch.eye(3)[torch.arange(40) % 3]
    store.write_predictions(logits, [bad] * 40, names)
    for inputs in (None, torch.rand(40, 1, 4, 4)):
        reader = read(write_report(store, inputs, examiner))
        assert bad in reader.text


def test_class_names_of_any_language_are_shown(tmp_path: Path) -> None:
    store, examiner = write_run(tmp_path / "run", classes=2, names=["猫", "собака"])
    assert "猫" in read(write_report(store, None, examiner)).text


def test_secrets_among_the_settings_are_not_shown(tmp_path: Path) -> None:
    config = {"tracking_args": {"wandb_key": "abc123", "s3": {"CN_S3_SAK": "def456"}, "run_name": "mine"}}
    store, examiner = write_run(tmp_path / "run", config=config)
    page = write_report(store, None, examiner).read_text()
    assert "abc123" not in page
    assert "def456" not in page
    assert "run_name: mine" in page


def test_data_of_another_size_is_refused(tmp_path: Path) -> None:
    store, _ = write_run(tmp_path / "run")
    with pytest.raises(UserError, match=r"41 samples but the run .* labelled 40"):
        write_report(store, torch.rand(41, 5), None)


def test_a_report_needs_no_matplotlib_and_a_run_imports_little_of_it() -> None:
    code = (
        "import sys, mrtf_fedml.report;"
        "early = [name for name in sys.modules if name.startswith('mrtf_fedml.report.')];"
        "import mrtf_fedml.report.page, mrtf_fedml.report.side_by_side; print(early, 'matplotlib' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[] False"


def test_all_that_a_folder_may_hold_is_shown(tmp_path: Path) -> None:
    metrics = [line(number, acc_mine=0.5, mine_norm=number, left_out={"3": "too late"}) for number in range(3)]
    store, examiner = write_run(
        tmp_path / "run", metrics=metrics, samples=60, warnings=["One class is empty."], device="cuda:0"
    )
    add_everything(store)
    reader = read(write_report(store, torch.rand(60, 1, 8, 8), examiner))
    for words in (
        "One class is empty.",
        "too late",
        "· cuda:0 ·",
        "What the algorithm measured",
        "mine norm",
        "train_args.learning_rate became 0.05",
        "Agreement of the teachers",
        "agreement 0.",
        "expected calibration error",
        "As the model sees them",
        "Who holds what",
    ):
        assert words in reader.text
    assert {address[1:] for address in reader.addresses if address.startswith("#")} == set(reader.ids)


def test_without_the_data_the_report_lacks_only_the_pictures_of_samples(tmp_path: Path) -> None:
    store, examiner = write_run(tmp_path / "run")
    whole = read(write_report(store, torch.rand(40, 1, 4, 4), examiner))
    assert whole.tags.count("img") == 24
    again = read(write_report(store, None, None))
    assert again.tags.count("img") == 0
    for words in ("Confusion", "expected calibration error"):
        assert words in again.text


def test_marks_of_another_answer_are_not_shown(tmp_path: Path) -> None:
    store, examiner = write_run(tmp_path / "run")
    write_report(store, None, examiner)
    summary = json.loads((store.path / "summary.json").read_text())
    store.write_json("summary.json", {**summary, "accuracy": 0.99})
    text = read(write_report(store, None, None)).text
    assert "0.99 of them right" in text
    assert "Recall" in text
    assert "Confusion" not in text


def test_arrays_of_another_answer_are_left_out(tmp_path: Path) -> None:
    store, examiner = write_run(tmp_path / "run")
    add_everything(store)
    np.save(store.path / "agreement.npy", np.ones(39))
    text = read(write_report(store, None, examiner)).text
    assert "Agreement of the teachers" not in text
    assert "As the model sees them" in text


def test_a_line_needs_no_more_than_every_round_has(tmp_path: Path) -> None:
    bare = {
        "round": 0, "clients": [0], "left_out": {}, "local_loss": None, "seconds_local": 1.0, "seconds_refine": 0.0,
        "bytes_up": 1, "bytes_down": 1, "acc": 0.5,
    }  # fmt: skip
    store, examiner = write_run(tmp_path / "run", metrics=[bare])
    assert "the model that answers" in read(write_report(store, None, examiner)).text
