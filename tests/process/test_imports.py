"""The collector rests while heavy modules are imported, and works as before afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrtf_fedml.process.imports import without_collecting


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


class _Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


def test_what_was_imported_is_left_out_of_later_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_heavy_module.py").write_text("values = [[number] for number in range(100_000)]\n")
    monkeypatch.syspath_prepend(tmp_path)
    frozen = gc.get_freeze_count()
    with without_collecting():
        import a_heavy_module  # type: ignore[import-not-found]

        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(a_heavy_module.values)
    del sys.modules["a_heavy_module"]


def test_later_garbage_is_found() -> None:
    with without_collecting():
        pass
    gone = weakref.ref(_Ring())
    assert gone() is not None
    gc.collect()
    assert gone() is None


def test_where_nothing_is_imported_nothing_is_left_out() -> None:
    frozen = gc.get_freeze_count()
    with without_collecting():
        import json  # noqa: F401
    assert gc.get_freeze_count() == frozen


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with without_collecting():
        pass
    assert not gc.isenabled()


def test_an_import_that_fails_leaves_the_collector_on() -> None:
    with pytest.raises(ImportError), without_collecting():
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()


def test_at_the_end_of_the_process_all_is_found_again(tmp_path: Path) -> None:
    (tmp_path / "a_module.py").write_text("")
    program = (
        "import atexit, gc\n"
        "from mrtf_fedml.process.imports import without_collecting\n"
        "atexit.register(lambda: print('left out at the end:', gc.get_freeze_count()))\n"
        "with without_collecting():\n"
        "    import a_module\n"
        "print('left out:', gc.get_freeze_count() > 0)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["left out: True", "left out at the end: 0"]
