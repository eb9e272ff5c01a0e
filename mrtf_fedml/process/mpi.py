"""Ranks under mpirun: their number, agreement on errors, waiting, and the end of all ranks after a failure.

Nothing here imports MPI before it is needed. Its import starts MPI.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from ..errors import RunInterrupted, RunStopped, UserError, shorten_repr, suggest_name
from .signals import interrupt_exit_code

_log = logging.getLogger(__name__)

#: Variables that Open MPI, and MPICH and its relatives, set for each rank.
_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")

#: The simulation backends whose processes mpirun starts. NCCL means MPI ranks with one GPU each.
RANKS_BACKENDS = ("MPI", "NCCL")
SIMULATION_BACKENDS = ("sp", *RANKS_BACKENDS)

MPI_START_HINT = "start it with `mpirun -n 4 mrtf run --cf FILE.yaml` or `launch/mpirun.sh 4 FILE.yaml`"

#: Seconds between two checks of `poll_until`: the first and the longest pause.
_FIRST_PAUSE, _MAX_PAUSE = 0.00005, 0.002

EXIT_FAILURE, EXIT_USER_ERROR = 1, 2
#: Seconds that an interrupted trainer leaves the server to store the finished rounds.
GRACE_SECONDS = 5.0


class CollectiveUserError(UserError):
    """A user error that every rank has received: all ranks end, and rank 0 alone prints it."""


@dataclass(frozen=True)
class RankInfo:
    """The position of a process among those that run together.

    Attributes:
        rank: of `ranks`; 0 is the server.
        local_rank: of the `local_ranks` on the same host.
    """

    rank: int = 0
    ranks: int = 1
    local_rank: int = 0
    local_ranks: int = 1


def world_size() -> int:
    """Number of ranks that mpirun started; 1 without mpirun. Read from the environment until MPI runs."""
    if mpi_is_running():
        return int(_mpi().COMM_WORLD.Get_size())
    return _first_number(_SIZE_VARIABLES, default=1)


def world_rank() -> int:
    """The rank of this process; 0 without mpirun."""
    if mpi_is_running():
        return int(_mpi().COMM_WORLD.Get_rank())
    return _first_number(_RANK_VARIABLES, default=0)


def world_communicator() -> Any:
    """MPI's communicator of all ranks; None if mpirun did not start this process."""
    return _mpi().COMM_WORLD if world_size() > 1 else None


def rank_info(comm: Any) -> RankInfo:
    """The position of this rank; MPI reports which ranks share its host."""
    host = comm.Split_type(_mpi().COMM_TYPE_SHARED)
    info = RankInfo(comm.Get_rank(), comm.Get_size(), host.Get_rank(), host.Get_size())
    host.Free()
    return info


def mpi_is_running() -> bool:
    """Whether this process has started MPI; it must then not end while other ranks continue."""
    if "mpi4py.MPI" not in sys.modules:
        return False
    return _mpi().Is_initialized() and not _mpi().Is_finalized()


def check_backend(training_type: str, backend: str) -> None:
    """Reject an unknown backend of a simulation, for which FedML itself would raise an exception."""
    if training_type == "simulation" and backend not in SIMULATION_BACKENDS:
        suggestion = suggest_name(str(backend), list(SIMULATION_BACKENDS))
        raise UserError(f"comm_args.backend is {shorten_repr(backend)}, not a backend of a simulation; {suggestion}")


def check_start(training_type: str, backend: str, ranks: int) -> None:
    """Reject a number of processes that the backend does not support."""
    over_ranks = training_type == "simulation" and backend in RANKS_BACKENDS
    if over_ranks and ranks < 2:
        raise UserError(
            f"backend {backend} needs a server and at least one trainer, but there is 1 process; {MPI_START_HINT}"
        )
    if training_type == "simulation" and backend == "sp" and ranks > 1:
        raise UserError(
            f"backend sp runs in one process, but mpirun started {ranks}, which would repeat the same run; "
            "set backend: MPI (comm_args), or start it without mpirun"
        )


def poll_until(is_done: Callable[[], bool], between: Callable[[], None] | None = None) -> None:
    """Wait by polling at growing intervals, asleep in between; MPI's own waiting would occupy a core.

    Args:
        is_done: polled until it returns true.
        between: called between two polls; it may raise to stop the waiting.
    """
    pause = _FIRST_PAUSE
    while not is_done():
        if between is not None:
            between()
        time.sleep(pause)
        pause = min(pause * 1.5, _MAX_PAUSE)


def sleeping_barrier(comm: Any) -> None:
    """A barrier of all ranks that waits asleep."""
    request = comm.Ibarrier()
    poll_until(request.Test)


@contextmanager
def agree_on_errors() -> Iterator[None]:
    """Collect the user errors that ranks raise in the block; after it, all ranks raise the same one.

    The message is printed once; where ranks differ, each error names its rank. Without mpirun the block has no effect.
    """
    if world_size() < 2:
        yield
        return
    own_error: UserError | None = None
    try:
        yield
    except UserError as error:
        own_error = error
    world = _mpi().COMM_WORLD
    sleeping_barrier(world)
    errors = world.allgather(None if own_error is None else str(own_error))
    if any(errors):
        raise CollectiveUserError(_merge_errors(errors)) from own_error


def _merge_errors(errors: list[str | None]) -> str:
    """One message from the errors of all ranks.

    >>> _merge_errors(["no file x", "no file x"])
    'no file x'
    >>> _merge_errors([None, "no file x"])
    'rank 1: no file x'
    """
    if set(errors[1:]) in ({errors[0]}, {None}):
        return str(errors[0])
    return "; ".join(f"rank {rank}: {error}" for rank, error in enumerate(errors) if error is not None)


@contextmanager
def abort_all_ranks_on_error() -> Iterator[None]:
    """End all ranks if one of them raises in the block. Without MPI the block has no effect.

    A rank that raised would wait for the others in MPI's finalization, and they for it. So it logs and prints the
    error and aborts MPI: mpirun then ends every rank. Files on disk are complete, since they are written atomically.
    """
    try:
        yield
    except CollectiveUserError:
        # All ranks raise it: they end together, and rank 0 prints it.
        raise
    except BaseException as error:
        # A single process ends as usual. FedML's environment report starts MPI even without mpirun.
        if not mpi_is_running() or world_size() < 2:
            raise
        _abort_with(error)


def _abort_with(error: BaseException) -> NoReturn:
    rank = world_rank()
    if isinstance(error, KeyboardInterrupt):
        if rank == 0:
            _print_error(
                f"mrtf: {error}" if isinstance(error, RunInterrupted) else "mrtf: interrupted; no round finished"
            )
        else:
            time.sleep(GRACE_SECONDS)
        _abort(interrupt_exit_code(error))
    is_expected = isinstance(error, UserError | RunStopped)
    message = str(error) if is_expected else "".join(traceback.format_exception(error))
    if rank > 0:
        # Rank 0 logs to the terminal, where the message is printed below.
        _log.error("%s", message)
    prefix = f"mrtf: rank {rank}: " if is_expected else f"mrtf: rank {rank} failed and ends the run\n"
    _print_error(prefix + message)
    _abort(EXIT_USER_ERROR if isinstance(error, UserError) else EXIT_FAILURE)


def _print_error(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _abort(code: int) -> NoReturn:
    from mpi4py import MPI

    logging.shutdown()
    sys.stdout.flush()
    MPI.COMM_WORLD.Abort(code)
    raise SystemExit(code)


def _mpi() -> Any:
    """The module mpi4py.MPI."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise UserError(f"MPI cannot be used ({error}); install it with: pip install 'mrtf_fedml[mpi]'") from None
    return MPI


def _first_number(variables: tuple[str, ...], default: int) -> int:
    numbers = [int(os.environ[name]) for name in variables if os.environ.get(name, "").isdigit()]
    return numbers[0] if numbers else default
