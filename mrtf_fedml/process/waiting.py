"""Waiting for other ranks asleep: MPI's own waiting spins, and keeps a core from whoever works."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_SHORTEST_NAP, _LONGEST_NAP = 0.00005, 0.002


def wait_until(happened: Callable[[], bool], meanwhile: Callable[[], None] | None = None) -> None:
    """Ask at growing intervals, asleep between: MPI's own waiting spins, and keeps a core from whoever works.

    Args:
        happened: what is waited for.
        meanwhile: called between two looks; it may raise, and so end the waiting.
    """
    nap = _SHORTEST_NAP
    while not happened():
        if meanwhile is not None:
            meanwhile()
        time.sleep(nap)
        nap = min(nap * 1.5, _LONGEST_NAP)


def quiet_barrier(comm: Any) -> None:
    """Wait, asleep, until every rank is here."""
    request = comm.Ibarrier()
    wait_until(request.Test)
