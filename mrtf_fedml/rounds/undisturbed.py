"""A round that is done is written down whole before a signal ends the run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within the block a first SIGINT or SIGTERM waits for its end; a second one does not.

    Signals reach the main thread alone; in any other the block is nothing special.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    # One that is ignored, as Ctrl-C is in a script's background job, stays so.
    heard = {number: handler for number, handler in before.items() if callable(handler)}
    waiting: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        waiting.append(number)
        if len(waiting) > 1:
            heard[signal.Signals(number)](number, frame)

    for number in heard:
        signal.signal(number, wait)
    try:
        yield
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)
    if waiting:
        heard[signal.Signals(waiting[0])](waiting[0], None)
