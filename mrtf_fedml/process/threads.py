"""The threads of PyTorch in this process."""

from __future__ import annotations

import os
from typing import Any

#: Iterations that a waiting OpenMP thread spins before it sleeps: enough for the next parallel section on idle cores.
_SPIN_COUNT = "10000"


def set_threads(threads: int | None, default: int | None = None) -> int:
    """Set the number of PyTorch threads; OMP_NUM_THREADS takes precedence, and all cores are the default.

    The number is part of a run's identity: sums are split among threads, so that other numbers give other last bits.

    Args:
        threads: the user's setting.
        default: the number without a setting, if it is not all cores.
    """
    # Imported here: `limit_thread_spinning` must run before PyTorch is loaded.
    import torch

    variable = os.environ.get("OMP_NUM_THREADS", "")
    setting = int(variable) if variable.isdigit() and int(variable) > 0 else threads
    number = setting or default or len(os.sched_getaffinity(0))
    torch.set_num_threads(number)
    return number


def threads_per_rank(comm: Any, local_ranks: int) -> int:
    """The cores of a host divided by its ranks; the minimum over all hosts, so that every rank has the same number."""
    from mpi4py import MPI

    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    # mpirun may have bound each rank to some cores; the host's ranks have their union.
    cores = set().union(*host.allgather(os.sched_getaffinity(0)))
    host.Free()
    return comm.allreduce(max(1, len(cores) // local_ranks), op=MPI.MIN)


def limit_thread_spinning() -> None:
    """Let PyTorch's threads sleep soon while they wait for each other. Call it before PyTorch is loaded.

    By default they spin: where another process uses the core that one of them needs, the others waste theirs. Sleeping
    at once would cost much on idle cores (docs/lab/speed.md). The user's own variables stay.
    """
    if "OMP_WAIT_POLICY" in os.environ:
        return
    # GNU's OpenMP, which PyTorch's own builds use, reads the first variable; Intel's reads the second.
    for variable, value in (("GOMP_SPINCOUNT", _SPIN_COUNT), ("KMP_BLOCKTIME", "0")):
        os.environ.setdefault(variable, value)
