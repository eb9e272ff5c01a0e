"""A run told to a person: `report.html`, one file that needs no network and no script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from ..data.examiner import Examiner
from ..errors import FolderUnwritable, UserError
from ..rounds.store import RunStore


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

    facts = read_facts(store, inputs, examiner)
    if examiner is not None:
        keep_marks(store, facts)
    return _written(file or store.path / "report.html", page(facts, inputs))


def write_side_by_side(stores: Sequence[RunStore], file: Path) -> Path:
    """Write one page on several runs from what their folders hold, and return its path."""
    from .reading import read_facts
    from .side_by_side import Run, names_of, side_by_side

    names = names_of([store.path for store in stores])
    runs = [Run(name, read_facts(store, None, None)) for name, store in zip(names, stores, strict=True)]
    return _written(file, side_by_side(runs))


def _written(file: Path, content: str) -> Path:
    try:
        RunStore(file.parent).write_text(file.name, content)
    except FolderUnwritable as error:
        why = getattr(error.__cause__, "strerror", None) or "no room, or no leave"
        raise UserError(f"{str(file)!r} cannot be written ({why}); name another file with -o") from error
    return file


__all__ = ["write_report", "write_side_by_side"]
