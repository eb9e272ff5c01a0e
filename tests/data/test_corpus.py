"""Files that were made to mislead, to run a command or to fill the memory: each is refused in one sentence.

`corpus/` has a folder per place where a reader opens a file (`places.py`). What a file there does is its name;
those whose names begin with `fine` are odd but sound, and are read.
"""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrtf_fedml.data import Source
from mrtf_fedml.errors import UserError
from mrtf_fedml.settings.yaml_file import read_config
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


def test_every_place_has_its_folder() -> None:
    assert {folder.name for folder in CORPUS.iterdir() if folder.is_dir()} == {*PLACES, "yaml"}


@pytest.mark.parametrize("name", PLACES)
def test_a_file_of_the_corpus_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
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


def test_configurations_of_the_corpus() -> None:
    for path in files("yaml"):
        if path.name.startswith("fine"):
            assert read_config(path)
            continue
        with pytest.raises(UserError) as told:
            read_config(path)
        assert "\n" not in str(told.value)
        assert len(str(told.value)) < 1000
