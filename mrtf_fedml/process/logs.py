"""Logging: rank 0 writes to the terminal, each other rank to its own file in the run directory."""

from __future__ import annotations

import logging
from logging.handlers import MemoryHandler
from pathlib import Path

_LOGGER = logging.getLogger("mrtf_fedml")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_BUFFERED_RECORDS = 10_000


class _LogFile(logging.FileHandler):
    """A log file that ends silently when the disk is full; Python would print a traceback for each lost line."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing: the server reports that the disk is full."""


def log_to_terminal(verbose: bool) -> None:
    """Write this process's warnings to the terminal, and with `verbose` its other messages."""
    _LOGGER.setLevel(logging.INFO if verbose else logging.WARNING)
    _LOGGER.propagate = False
    if not _LOGGER.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
        _LOGGER.addHandler(handler)


def buffer_log() -> None:
    """Buffer this rank's messages until the run directory is known."""
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False
    # If the run ends before it has a directory, buffered messages are dropped: rank 0 has printed the same.
    _LOGGER.handlers[:] = [MemoryHandler(_BUFFERED_RECORDS, flushLevel=logging.CRITICAL + 1, flushOnClose=False)]


def log_path(run_dir: str | Path, rank: int) -> Path:
    """The log file of that rank."""
    return Path(run_dir) / "logs" / f"rank-{rank}.log"


def log_to_file(run_dir: str | Path, rank: int) -> None:
    """Write this rank's messages, and the buffered ones, to its file; a resumed run appends to it."""
    path = log_path(run_dir, rank)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _LogFile(path)
    except OSError:
        # The server writes to the same directory and reports the reason.
        return
    file.setFormatter(logging.Formatter(_FORMAT))
    for buffer in [handler for handler in _LOGGER.handlers if isinstance(handler, MemoryHandler)]:
        buffer.setTarget(file)
        buffer.flush()
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False
    _LOGGER.handlers[:] = [file]
