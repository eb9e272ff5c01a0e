"""The phases of a round: which one is running, and its CPU seconds. Unless somebody listens, a phase costs nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOCAL, TEACHERS, TARGETS, DISTILLING = "local training", "teachers", "targets", "distilling"

_measurements: list[dict[str, float]] = []
#: Called with the name of each phase that begins.
listeners: list[Callable[[str], None]] = []


@contextmanager
def phase(name: str) -> Iterator[None]:
    """A block of work of that name; PyTorch's profiler shows it in its trace."""
    for listener in listeners:
        listener(name)
    if not _measurements:
        yield
        return
    from torch.profiler import record_function

    began = time.process_time()
    with record_function(name):
        yield
    elapsed = time.process_time() - began
    for seconds in _measurements:
        seconds[name] = seconds.get(name, 0.0) + elapsed


@contextmanager
def measured_phases() -> Iterator[dict[str, float]]:
    """CPU seconds by phase, of the phases that end within this block.

    >>> with measured_phases() as seconds:
    ...     with phase("teachers"):
    ...         pass
    >>> list(seconds)
    ['teachers']
    """
    seconds: dict[str, float] = {}
    _measurements.append(seconds)
    try:
        yield seconds
    finally:
        # By identity: two concurrent measurements may hold equal numbers.
        _measurements[:] = [other for other in _measurements if other is not seconds]
