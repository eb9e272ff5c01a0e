"""What is logged, and where: the terminal is rank 0's, each trainer has a file of its own under the run's folder."""

from __future__ import annotations

import logging
from logging.handlers import MemoryHandler
from pathlib import Path

_OURS = logging.getLogger("mrtf_fedml")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MANY = 10_000


class _LogFile(logging.FileHandler):
    """A log on a disk that has filled up is cut off; Python would tell each lost line by a traceback."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Nothing: the server says that the disk is full."""


def show_log(verbose: bool) -> None:
    """Write what this process logs to the terminal: warnings, and with `verbose` the rest."""
    _OURS.setLevel(logging.INFO if verbose else logging.WARNING)
    _OURS.propagate = False
    if not _OURS.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
        _OURS.addHandler(handler)


def hold_log() -> None:
    """Keep what this rank logs until the run's folder is known."""
    _OURS.setLevel(logging.INFO)
    _OURS.propagate = False
    # Lines kept in memory are written by no one if the run ends before it has a folder: rank 0 said the same.
    _OURS.handlers[:] = [MemoryHandler(_MANY, flushLevel=logging.CRITICAL + 1, flushOnClose=False)]


def log_file(run_dir: str | Path, rank: int) -> Path:
    """Where that rank's log is."""
    return Path(run_dir) / "logs" / f"rank-{rank}.log"


def open_log(run_dir: str | Path, rank: int) -> None:
    """Write what this rank logs, and what it has kept, to its file; a resumed run goes on with it."""
    place = log_file(run_dir, rank)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        file = _LogFile(place)
    except OSError:
        # The server writes to the same folder, and says why it cannot.
        return
    file.setFormatter(logging.Formatter(_FORMAT))
    for held in [handler for handler in _OURS.handlers if isinstance(handler, MemoryHandler)]:
        held.setTarget(file)
        held.flush()
    _OURS.setLevel(logging.INFO)
    _OURS.propagate = False
    _OURS.handlers[:] = [file]
