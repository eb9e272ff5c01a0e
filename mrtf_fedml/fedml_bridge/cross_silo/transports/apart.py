"""Calls that Ctrl-C cannot cut off half way.

Python raises it in the main thread, wherever that stands: also where GRPC or an MQTT client has just taken a lock, of
one channel or of the whole process, and has not yet come to the place that gives it back. Nothing is sent past such a
lock any more, and so no goodbye. The main thread therefore only waits, and another one makes the call.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def apart(call: Callable[[], _Result], seconds: float | None = None) -> _Result:
    """What the call gives, or raises. It is made outside the main thread, and goes on where the wait for it ends early.

    Raises:
        TimeoutError: it has taken longer than so many seconds.

    >>> apart(lambda: 6 * 7)
    42
    """
    if seconds is None and threading.current_thread() is not threading.main_thread():
        return call()
    # Its locks are out of the interpreter's reach, unlike those of an event, a future or a queue.Queue.
    outcome: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((call(), None))
        except BaseException as error:
            outcome.put((None, error))

    threading.Thread(target=run, name="a call apart", daemon=True).start()
    try:
        result, error = outcome.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"the call has taken longer than {seconds:g} s") from None
    if error is not None:
        raise error
    return result
