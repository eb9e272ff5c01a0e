"""How this process was started: alone, or as a rank under mpirun. Nothing here imports MPI before it must."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import UserError, nearest, shown
from .waiting import quiet_barrier

#: What Open MPI, and MPICH with its kin, tell each rank.
_SIZE_KEYS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_RANK_KEYS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")

#: The backends of a simulation whose processes mpirun starts. NCCL is MPI's ranks with a GPU each.
RANKS_BACKENDS = ("MPI", "NCCL")
SIMULATION_BACKENDS = ("sp", *RANKS_BACKENDS)

HOW_TO_START = "start it with `mpirun -n 4 mrtf run --cf FILE.yaml` or `launch/mpirun.sh 4 FILE.yaml`"


class AgreedError(UserError):
    """A user's error that every rank knows of: each ends by it, and rank 0 alone says it."""


@dataclass(frozen=True)
class Place:
    """Where a process stands among those that run together.

    Attributes:
        rank: of `ranks`; 0 is the server.
        local_rank: of the `local_ranks` on the same host.
    """

    rank: int = 0
    ranks: int = 1
    local_rank: int = 0
    local_ranks: int = 1


def started_ranks() -> int:
    """How many ranks mpirun started; 1 without mpirun. Before MPI runs it is read from the environment."""
    if mpi_is_running():
        return int(_mpi().COMM_WORLD.Get_size())
    return _first_number(_SIZE_KEYS, default=1)


def started_rank() -> int:
    """Which of them this process is; 0 without mpirun."""
    if mpi_is_running():
        return int(_mpi().COMM_WORLD.Get_rank())
    return _first_number(_RANK_KEYS, default=0)


def check_backend(training_type: str, backend: str) -> None:
    """Refuse what FedML's own start would end by an exception, before it is asked."""
    if training_type == "simulation" and backend not in SIMULATION_BACKENDS:
        known = nearest(str(backend), list(SIMULATION_BACKENDS))
        raise UserError(f"comm_args.backend is {shown(backend)}, which no simulation takes; {known}")


def check_start(training_type: str, backend: str, refine_on: str, ranks: int) -> None:
    """Refuse a way of starting, or a setting, that the backend cannot serve."""
    over_ranks = training_type == "simulation" and backend in RANKS_BACKENDS
    if over_ranks and ranks < 2:
        raise UserError(
            f"backend {backend} needs a server and at least one trainer, but there is 1 process; {HOW_TO_START}"
        )
    if training_type == "simulation" and backend == "sp" and ranks > 1:
        raise UserError(
            f"backend sp runs in one process, but mpirun started {ranks}, which would do the same run {ranks} times; "
            "set backend: MPI (comm_args), or start it without mpirun"
        )
    if refine_on != "server" and not over_ranks:
        raise UserError(
            f"refine_on: {refine_on} shares the server's inputs with trainers, which only a simulation with backend "
            "MPI may do; set refine_on: server (mrtf_args)"
        )


def world() -> Any:
    """MPI's communicator of all ranks; None where mpirun did not start this process."""
    return _mpi().COMM_WORLD if started_ranks() > 1 else None


def place_in(comm: Any) -> Place:
    """Where this rank stands, found by asking MPI which ranks share its host."""
    host = comm.Split_type(_mpi().COMM_TYPE_SHARED)
    place = Place(comm.Get_rank(), comm.Get_size(), host.Get_rank(), host.Get_size())
    host.Free()
    return place


@contextmanager
def agreement() -> Iterator[None]:
    """Within the block a rank may find fault with what the user gave; after it, all ranks know and end alike.

    The message is said once: where ranks differ, each fault names its rank. Alone, the block is nothing special.
    """
    if started_ranks() < 2:
        yield
        return
    fault: UserError | None = None
    try:
        yield
    except UserError as error:
        fault = error
    world = _mpi().COMM_WORLD
    quiet_barrier(world)
    faults = world.allgather(None if fault is None else str(fault))
    if any(faults):
        raise AgreedError(_one_message(faults)) from fault


def mpi_is_running() -> bool:
    """Whether this process has started MPI, so that it may not simply end while others go on."""
    if "mpi4py.MPI" not in sys.modules:
        return False
    return _mpi().Is_initialized() and not _mpi().Is_finalized()


def _mpi() -> Any:
    """mpi4py's module; only where ranks run together, since its import starts MPI."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise UserError(f"MPI cannot be used ({error}); install it with: pip install 'mrtf_fedml[mpi]'") from None
    return MPI


def _one_message(faults: list[str | None]) -> str:
    """What the ranks found, said once.

    >>> _one_message(["no file x", "no file x"])
    'no file x'
    >>> _one_message([None, "no file x"])
    'rank 1: no file x'
    """
    if set(faults[1:]) in ({faults[0]}, {None}):
        return str(faults[0])
    return "; ".join(f"rank {rank}: {fault}" for rank, fault in enumerate(faults) if fault is not None)


def _first_number(keys: tuple[str, ...], default: int) -> int:
    numbers = [int(os.environ[key]) for key in keys if os.environ.get(key, "").isdigit()]
    return numbers[0] if numbers else default
