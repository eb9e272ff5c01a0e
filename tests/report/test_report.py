"""The whole page, from folders of every kind."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

from mrtf_fedml.errors import UserError
from mrtf_fedml.report import write_report
from mrtf_fedml.rounds.store import RunStore

from .rounds import NOT_SCORED, line, write_run

VOID = {"meta", "img", "br"}


class Reader(HTMLParser):
    """Follows the page's elements: they must close in order; keeps what a browser would load or run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "xlink:href"):
                self.addresses.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(path: Path) -> Reader:
    reader = Reader(path.read_text())
    assert reader.open == []
    assert "script" not in reader.tags
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in reader.addresses)
    return reader


def test_the_page_tells_of_a_labelled_run(tmp_path: Path) -> None:
    store, examiner = write_run(tmp_path / "run")
    path = write_report(store, torch.rand(40, 1, 8, 8), examiner)
    assert path == tmp_path / "run" / "report.html"
    reader = read(path)
    assert reader.tags.count("svg") == 6
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


def test_scores_of_the_summary_serve_where_no_examiner_is_given(tmp_path: Path) -> None:
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


def test_class_names_of_any_language_raise_no_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    store, examiner = write_run(tmp_path / "run", classes=2, names=["猫", "собака"])
    assert "猫" in read(write_report(store, None, examiner)).text
    assert [str(warning.message) for warning in recwarn if "Glyph" in str(warning.message)] == []


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


def test_matplotlib_is_imported_by_a_report_alone() -> None:
    code = "import sys, mrtf_fedml.report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_users_own_matplotlib_is_left_as_it_was(tmp_path: Path) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    store, examiner = write_run(tmp_path / "run")
    write_report(RunStore.open(store.path), None, examiner)
    assert dict(mpl.rcParams) == before
