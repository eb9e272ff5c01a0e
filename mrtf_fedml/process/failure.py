"""What fails on one rank ends the run on all.

A rank that simply raises would wait for the others in MPI's own end, and they for it. So it says what happened, in its
log and on the terminal, and aborts: mpirun then takes every rank down. All that is on disk was moved into place whole.
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from ..errors import RunInterrupted, RunStopped, UserError
from .signals import code_of
from .start import (
    AgreedError,
    mpi_is_running,
    started_rank,
    started_ranks,
)

_log = logging.getLogger(__name__)

FAILED, WRONG = 1, 2
#: How long a trainer that is told to stop leaves the server to write down what was finished.
GRACE_SECONDS = 5.0


@contextmanager
def one_for_all() -> Iterator[None]:
    """Within the block no rank ends alone. Without MPI the block is nothing special."""
    try:
        yield
    except AgreedError:
        # Every rank is here: they end together, and rank 0 says why.
        raise
    except BaseException as error:
        # Alone a process may end as it likes: FedML's report on the environment starts MPI where nobody asked for it.
        if not mpi_is_running() or started_ranks() < 2:
            raise
        _end_all(error)


def _end_all(error: BaseException) -> NoReturn:
    rank = started_rank()
    if isinstance(error, KeyboardInterrupt):
        if rank == 0:
            _say(f"mrtf: {error}" if isinstance(error, RunInterrupted) else "mrtf: interrupted; nothing was finished")
        else:
            time.sleep(GRACE_SECONDS)
        _abort(code_of(error))
    wrong, known = isinstance(error, UserError), isinstance(error, UserError | RunStopped)
    message = str(error) if known else "".join(traceback.format_exception(error))
    if rank > 0:
        # Rank 0 logs to the terminal, and has it said there already.
        _log.error("%s", message)
    _say(f"mrtf: rank {rank}: {message}" if known else f"mrtf: rank {rank} failed and ends the run\n{message}")
    _abort(WRONG if wrong else FAILED)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _abort(code: int) -> NoReturn:
    from mpi4py import MPI

    logging.shutdown()
    sys.stdout.flush()
    MPI.COMM_WORLD.Abort(code)
    raise SystemExit(code)
