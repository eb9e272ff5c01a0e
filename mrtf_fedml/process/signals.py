"""Signals that end a process (Ctrl-C, SIGTERM) and a closed standard output, with the exit codes of the shell."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from types import FrameType
from typing import NoReturn

#: The shell's exit codes: 128 plus the number of SIGINT, SIGTERM and SIGPIPE.
INTERRUPTED, TERMINATED = 130, 143
BROKEN_PIPE_EXIT_CODE = 141


class Terminated(KeyboardInterrupt):
    """SIGTERM was received: handled as Ctrl-C, with another exit code."""


def raise_on_sigterm() -> None:
    """From now on SIGTERM raises `Terminated` in the main thread."""
    signal.signal(signal.SIGTERM, _raise_terminated)


def interrupt_exit_code(error: KeyboardInterrupt) -> int:
    """The exit code of a process that ends by this interrupt."""
    # A run raises its own interrupt, with a message about what is stored, from the first one.
    return TERMINATED if isinstance(error, Terminated) or isinstance(error.__cause__, Terminated) else INTERRUPTED


def exit_on_next_signal(code: int) -> None:
    """Once all messages and files are written: let Ctrl-C or SIGTERM end the process at once, without a traceback."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        os._exit(code)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _raise_terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


def stdout_reader_is_gone() -> bool:
    """Whether standard output is a pipe whose reader has ended, as in `mrtf runs | head`.

    Standard output then goes to /dev/null.
    """
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    try:
        descriptor = sys.stdout.fileno()
    except OSError:
        return False  # not a file: a test or a notebook captures the output
    poll = select.poll()
    poll.register(descriptor, 0)
    if not any(event & select.POLLERR for _, event in poll.poll(0)):
        return False
    # Python flushes standard output again at exit, which would raise.
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    return True
