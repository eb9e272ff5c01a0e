"""How many threads a process computes with."""

from __future__ import annotations

import os

import torch


def set_threads(threads: int | None) -> int:
    """Let PyTorch use so many threads; a set OMP_NUM_THREADS wins, and all cores are the default.

    The number belongs to a run's identity: sums are split among threads, so other counts differ in the last bits.
    """
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    number = int(wanted) if wanted.isdigit() and int(wanted) > 0 else threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(number)
    return number
