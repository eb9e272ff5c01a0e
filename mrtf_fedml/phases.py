"""Where a round's time goes: a block of work says its name, and whoever asked adds up its seconds.

Nobody asks in a usual run, and a block then costs one test of a variable.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

LOCAL, TEACHERS, TARGETS, DISTILLING = "local training", "teachers", "targets", "distilling"

_asked: list[dict[str, float]] = []


@contextmanager
def phase(name: str) -> Iterator[None]:
    """A block of work of that name. In a profile its trace stands under it."""
    if not _asked:
        yield
        return
    from torch.profiler import record_function

    began = time.process_time()
    with record_function(name):
        yield
    taken = time.process_time() - began
    for seconds in _asked:
        seconds[name] = seconds.get(name, 0.0) + taken


@contextmanager
def measured_phases() -> Iterator[dict[str, float]]:
    """CPU seconds by phase, of the blocks that end while this one lasts.

    >>> with measured_phases() as seconds:
    ...     with phase("teachers"):
    ...         pass
    >>> list(seconds)
    ['teachers']
    """
    seconds: dict[str, float] = {}
    _asked.append(seconds)
    try:
        yield seconds
    finally:
        # By identity: two that ask at once may hold equal numbers.
        _asked[:] = [other for other in _asked if other is not seconds]
