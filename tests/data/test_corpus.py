"""Malicious and malformed files: each is rejected with a one-line error.

`corpus/` has one folder per file that a reader opens (`places.py`). A file's name describes its content; files whose
names begin with `fine` are unusual but valid, and are read.
"""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrtf_fedml.config.loader import read_config
from mrtf_fedml.data import Source
from mrtf_fedml.errors import UserError
from tests.data.sources.places import MEGABYTES, PLACES

CORPUS = Path(__file__).parent / "corpus"

#: What a file's commands would leave in the current folder.
TRACE = Path("it-ran")


def files(place: str) -> list[Path]:
    return sorted(path for path in (CORPUS / place).iterdir() if not path.name.startswith("."))


@pytest.fixture(autouse=True)
def _nothing_runs_and_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not TRACE.exists()
    # A packed file is in memory in pieces and as a whole, for a moment.
    assert peak < 3 * MEGABYTES * 1e6


def test_corpus_has_a_folder_for_every_format() -> None:
    assert {folder.name for folder in CORPUS.iterdir() if folder.is_dir()} == {*PLACES, "yaml"}


@pytest.mark.parametrize("name", PLACES)
def test_corpus_file_is_rejected_with_one_line(tmp_path: Path, name: str) -> None:
    place, folder = PLACES[name], tmp_path / "data"
    folder.mkdir()
    place.write(folder)
    assert isinstance(place.outcome(folder), Source)
    for path in files(name):
        shutil.copyfile(path, folder / place.file)
        outcome = place.outcome(folder)
        assert isinstance(outcome, Source) == path.name.startswith("fine"), f"{path.name}: {outcome}"
        if isinstance(outcome, Source):
            "".join([*outcome.ids, *outcome.class_names, outcome.name]).encode()


def test_corpus_configurations_are_rejected() -> None:
    for path in files("yaml"):
        if path.name.startswith("fine"):
            assert read_config(path)
            continue
        with pytest.raises(UserError) as caught:
            read_config(path)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 1000
