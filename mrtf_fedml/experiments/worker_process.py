"""Processes for the runs of a comparison, forked from one process that has imported FedML: the import is paid once.

Each run still has its own process: it can be killed, it fails alone, and its threads are its own.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

#: Modules that every run imports, by name: only the bridge may import FedML.
_PRELOAD = ["mrtf_fedml.commands.run", "mrtf_fedml.fedml_bridge.participants"]

_context = multiprocessing.get_context("forkserver")


class RunProcess:
    """`mrtf` with these words in its own session; its output goes to the log.

    Args:
        words: the arguments of `mrtf`.
        log: the file for stdout and stderr.
        lock: the descriptor of a locked file, which the process inherits.
    """

    def __init__(self, words: list[str], log: Path, lock: int) -> None:
        _context.set_forkserver_preload(_PRELOAD)
        self._process = _context.Process(
            target=_run_command, args=(words, str(log), os.getcwd(), _InheritedDescriptor(lock))
        )
        self._process.start()

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, successfully or not."""
        return self._process.exitcode is not None

    def terminate(self) -> None:
        """Send SIGTERM: the run saves its finished rounds and ends."""
        if self._process.pid is not None and not self.has_ended:
            os.kill(self._process.pid, signal.SIGTERM)

    def wait(self, seconds: float) -> None:
        """Wait this many seconds for the end; then kill the process."""
        self._process.join(seconds)
        if not self.has_ended:
            self._process.kill()
            self._process.join()


class _InheritedDescriptor:
    """A file descriptor that the run inherits: its lock is held while the run lives, even if this process is killed."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive_descriptor, (DupFd(self.descriptor),)


def _receive_descriptor(sent: Any) -> int:
    return int(sent.detach())


def _run_command(words: list[str], log: str, folder: str, lock: int) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(output, stream)
    # Its own session: Ctrl-C reaches the comparison alone, which ends the runs in order.
    os.setsid()
    os.chdir(folder)
    # As `python -m` does: the user's own modules are in the current folder.
    sys.path.insert(0, folder)
    sys.exit(importlib.import_module("mrtf_fedml.cli").main(words))
