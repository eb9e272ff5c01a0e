"""Processes for a comparison's runs, forked from one that has FedML's imports behind it: they are paid once.

A run still has a process of its own: it can be killed, it fails alone, and its threads are its own.
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

#: What every run imports. It is named, not imported: this room knows no FedML.
_PRELOADED = ["mrtf_fedml.commands.run", "mrtf_fedml.fedml_bridge.launcher"]

_forks = multiprocessing.get_context("forkserver")


class RunProcess:
    """`mrtf` with these words, in a session of its own; what it says goes into the log."""

    def __init__(self, words: list[str], log: Path, lock: int) -> None:
        _forks.set_forkserver_preload(_PRELOADED)
        where = (str(log), os.getcwd())
        self._process = _forks.Process(target=_run, args=(words, where, _Inherited(lock)))
        self._process.start()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, however that was."""
        return self._process.exitcode is not None

    def ask_to_end(self) -> None:
        """Let it write down what it has finished."""
        if self._process.pid is not None and not self.is_over:
            os.kill(self._process.pid, signal.SIGTERM)

    def end(self, seconds: float) -> None:
        """Wait for it so long, and no longer."""
        self._process.join(seconds)
        if not self.is_over:
            self._process.kill()
            self._process.join()


class _Inherited:
    """A file descriptor that the run shares: a lock on it is held as long as the run lives, even if we are killed."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (DupFd(self.descriptor),)


def _received(sent: Any) -> int:
    return int(sent.detach())


def _run(words: list[str], where: tuple[str, str], lock: int) -> None:
    log, folder = where
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(output, stream)
    # A session of its own: Ctrl-C reaches the comparison alone, which ends the runs in order.
    os.setsid()
    os.chdir(folder)
    # As `python -m` does: a user's own modules lie where he stands.
    sys.path.insert(0, folder)
    sys.exit(importlib.import_module("mrtf_fedml.cli").main(words))
