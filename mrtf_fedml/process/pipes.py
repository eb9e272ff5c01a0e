"""Whoever reads what a command prints may leave before its end, as in `mrtf runs | head`: that is no error."""

from __future__ import annotations

import contextlib
import os
import select
import sys

#: The shell's own for a writer whose reader has left: 128 and SIGPIPE's number.
READER_GONE = 141


def reader_is_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more; what is still to be printed then goes nowhere."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    try:
        output = sys.stdout.fileno()
    except OSError:
        return False  # not a file: a test or a notebook holds what is printed
    looked_at = select.poll()
    looked_at.register(output, 0)
    if not any(event & select.POLLERR for _, event in looked_at.poll(0)):
        return False
    # Python flushes once more when it ends, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True
