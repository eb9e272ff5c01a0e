"""What ends a process from outside: Ctrl-C (SIGINT), and SIGTERM, which a batch system, a container or `kill` sends."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn

#: The shell's own: 128 and the signal's number.
INTERRUPTED, TERMINATED = 130, 143


class Terminated(KeyboardInterrupt):
    """SIGTERM has come: the same end as by Ctrl-C, with another exit code."""


def hear_sigterm() -> None:
    """From now on SIGTERM raises `Terminated` in the main thread."""
    signal.signal(signal.SIGTERM, _terminate)


def code_of(error: KeyboardInterrupt) -> int:
    """The exit code of a process that ends by this."""
    # A run that tells what it has kept does so in an interruption of its own, which comes from the first one.
    return TERMINATED if isinstance(error, Terminated) or isinstance(error.__cause__, Terminated) else INTERRUPTED


def end_without_a_word(code: int) -> None:
    """All is said and written: whoever presses Ctrl-C once more gets the end at once, and no traceback of Python's."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        os._exit(code)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated
