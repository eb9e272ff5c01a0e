"""Waiting asleep, for other ranks and among threads: MPI and OpenMP spin, and keep a core from whoever works."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

_SHORTEST_NAP, _LONGEST_NAP = 0.00005, 0.002

#: Turns of a loop that a thread waits awake: enough for the next one to be done on idle cores, and little on others.
_SPINS = "10000"


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


def wait_passively() -> None:
    """Let PyTorch's threads soon sleep while they wait for each other. To be called before PyTorch is loaded.

    By default they spin, and where other work has the core that one of them needs, the others burn theirs meanwhile;
    asleep at once, they lose much on idle cores: docs/speed.md has the figures. What the user has set stays.
    """
    if "OMP_WAIT_POLICY" in os.environ:
        return
    # GNU's OpenMP, which PyTorch's own builds bring, reads the first; Intel's reads the second.
    for variable, value in (("GOMP_SPINCOUNT", _SPINS), ("KMP_BLOCKTIME", "0")):
        os.environ.setdefault(variable, value)
