"""Ctrl-C at a chosen moment of a call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def is_interrupted(call: Callable[[], Any], moment: int) -> bool:
    """Whether Ctrl-C at this moment, counted in entries and exits of Python functions, interrupts the call."""
    left = moment

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal left
        if event in ("call", "return"):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except (KeyboardInterrupt, RuntimeError):
        # A condition that is interrupted while it waits raises a RuntimeError about its lock.
        return True
    finally:
        sys.settrace(before)
    return False
