"""How many threads PyTorch uses in this process."""

from __future__ import annotations

import os
from typing import Any

import torch


def set_threads(threads: int | None, default: int | None = None) -> int:
    """Let PyTorch use so many threads; a set OMP_NUM_THREADS wins, and all cores are the default.

    The number belongs to a run's identity: sums are split among threads, so other counts differ in the last bits.

    Args:
        threads: what the user asked for.
        default: what they get without asking, where it is not all cores.
    """
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    given = int(wanted) if wanted.isdigit() and int(wanted) > 0 else threads
    number = given or default or len(os.sched_getaffinity(0))
    torch.set_num_threads(number)
    return number


def divided_threads(comm: Any, local_ranks: int) -> int:
    """The cores of a host divided among its ranks; the least of all hosts, so that every rank has the same number."""
    from mpi4py import MPI

    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    # mpirun may have bound each rank to some cores: together they have the union.
    cores = set().union(*host.allgather(os.sched_getaffinity(0)))
    host.Free()
    return comm.allreduce(max(1, len(cores) // local_ranks), op=MPI.MIN)
