"""A run told to a person: `report.html`, one file that needs no network and no script."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from ..data.examiner import Examiner
from ..errors import FolderUnwritable, RunStopped, UserError, shown
from ..rounds.store import RunStore

#: What reading a file raises that is not what it was.
_BROKEN = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(EOFError, OSError, MemoryError, RecursionError, csv.Error),
)


def write_report(store: RunStore, inputs: Tensor | None, examiner: Examiner | None, file: Path | None = None) -> Path:
    """Write `report.html` in the run's folder from what the folder holds, and return its path.

    A run that was interrupted, that has no labels or that was never scored has a report too; what is not
    known is left out, and the report says so. The same folder always gives the same bytes.

    Args:
        store: the run's folder.
        inputs: the server's inputs [M, ...], for pictures of the samples; None shows none.
        examiner: marks the answer; its marks are kept in the folder. None falls back on those that are there.
        file: another file to write.
    """
    # Imported here, since every process of a run imports this module and one of them writes a report.
    from .page import page
    from .reading import keep_marks, read_facts

    with _as_a_run_wrote([store]):
        facts = read_facts(store, inputs, examiner)
        if examiner is not None:
            keep_marks(store, facts)
        content = page(facts, inputs)
    return _written(file or store.path / "report.html", content)


def write_side_by_side(stores: Sequence[RunStore], file: Path) -> Path:
    """Write one page on several runs from what their folders hold, and return its path."""
    from .reading import read_facts
    from .side_by_side import Run, names_of, side_by_side

    names = names_of([store.path for store in stores])
    with _as_a_run_wrote(stores):
        runs = [Run(name, read_facts(store, None, None)) for name, store in zip(names, stores, strict=True)]
        content = side_by_side(runs)
    return _written(file, content)


@contextmanager
def _as_a_run_wrote(stores: Sequence[RunStore]) -> Iterator[None]:
    """What a run has written, others may have changed: a sentence then says so, at a run's end too."""
    try:
        yield
    except (UserError, RunStopped):
        raise
    except _BROKEN as error:
        folders = ", ".join(str(store.path) for store in stores)
        raise UserError(
            f"a file in {folders} is not as a run wrote it ({type(error).__name__}: {shown(str(error))}); restore the "
            "folder, or resume the run to write its answer anew"
        ) from error


def _written(file: Path, content: str) -> Path:
    try:
        RunStore(file.parent).write_text(file.name, content)
    except FolderUnwritable as error:
        why = getattr(error.__cause__, "strerror", None) or "no room, or no leave"
        raise UserError(f"{str(file)!r} cannot be written ({why}); name another file with -o") from error
    return file


__all__ = ["write_report", "write_side_by_side"]
