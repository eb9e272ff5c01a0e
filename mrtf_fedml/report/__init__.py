"""`report.html`: the report of a run as one file without network access and scripts."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from ..data.evaluator import SealedEvaluator
from ..errors import RunStopped, UserError, WriteError, shorten_repr
from ..training.run_directory import RunDirectory

#: Exceptions of reading a file that was changed.
_READ_ERRORS = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(EOFError, OSError, MemoryError, RecursionError, csv.Error),
)


def write_report(
    directory: RunDirectory, inputs: Tensor | None, evaluator: SealedEvaluator | None, file: Path | None = None
) -> Path:
    """Write `report.html` from the files of the run directory, and return its path.

    An interrupted run and a run without labels have a report too, without what is not known. The same directory always
    gives the same bytes.

    Args:
        directory: the run directory.
        inputs: the server's inputs [M, ...], for images of the samples; None shows none.
        evaluator: scores the predictions; the scores are stored in the directory. None uses the stored scores.
        file: another file to write.
    """
    # Imported here, since every process of a run imports this module and one of them writes a report.
    from .page import page
    from .run_data import read_run, write_evaluation

    with _report_damaged_files([directory]):
        data = read_run(directory, inputs, evaluator)
        if evaluator is not None:
            write_evaluation(directory, data)
        content = page(data, inputs)
    return _write_page(file or directory.path / "report.html", content)


def write_multi_run_report(directories: Sequence[RunDirectory], file: Path) -> Path:
    """Write one page of several runs, and return its path."""
    from .multi_run import NamedRun, multi_run_page, shortest_unique_names
    from .run_data import read_run

    names = shortest_unique_names([directory.path for directory in directories])
    with _report_damaged_files(directories):
        runs = [
            NamedRun(name, read_run(directory, None, None)) for name, directory in zip(names, directories, strict=True)
        ]
        content = multi_run_page(runs)
    return _write_page(file, content)


@contextmanager
def _report_damaged_files(directories: Sequence[RunDirectory]) -> Iterator[None]:
    """Raise a `UserError` if a file of the run was changed or damaged."""
    try:
        yield
    except (UserError, RunStopped):
        raise
    except _READ_ERRORS as error:
        folders = ", ".join(str(directory.path) for directory in directories)
        raise UserError(
            f"a file in {folders} is damaged ({type(error).__name__}: {shorten_repr(str(error))}); "
            "restore the directory, or resume the run to write its results again"
        ) from error


def _write_page(file: Path, content: str) -> Path:
    try:
        RunDirectory(file.parent).write_text(file.name, content)
    except WriteError as error:
        why = getattr(error.__cause__, "strerror", None) or "no space or no permission"
        raise UserError(f"{str(file)!r} cannot be written ({why}); use another file with -o") from error
    return file


__all__ = ["write_multi_run_report", "write_report"]
