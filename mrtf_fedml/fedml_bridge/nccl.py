"""`backend: NCCL`, which FedML advertises and does not ship: MPI's ranks, a GPU each, that refine together by NCCL.

FedML's `fedml.init` imports its start of NCCL from a module that its wheel has not. Here is one to import.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import fedml

from ..errors import UserError
from .arguments import settings_of

#: What FedML would import, and the function it would call, in FedML's spelling.
_MISSING = "fedml.simulation.nccl.base_framework.common"
_FUNCTION = "FedML_NCCL_Similulation_init"


def supply_nccl(is_ours: Callable[[Any], bool]) -> None:
    """Give FedML the module that it lacks, for the runs that are ours."""

    def start(args: Any) -> Any:
        if not is_ours(args):
            raise UserError(
                f"FedML {fedml.__version__} ships no simulator for backend NCCL, and federated_optimizer "
                f"{args.federated_optimizer!r} is FedML's own; set backend: MPI (comm_args), or name one of ours"
            )
        return start_as_mpi(args)

    module = ModuleType(_MISSING, __doc__)
    setattr(module, _FUNCTION, start)
    sys.modules[_MISSING] = module


def withdraw_nccl() -> None:
    """Let FedML lack it again."""
    sys.modules.pop(_MISSING, None)


@contextmanager
def supplied() -> Iterator[None]:
    """Within the block FedML can start NCCL, and every run is ours."""
    before = sys.modules.get(_MISSING)
    supply_nccl(lambda args: True)
    try:
        yield
    finally:
        withdraw_nccl()
        if before is not None:
            sys.modules[_MISSING] = before


def start_as_mpi(args: Any) -> Any:
    """What `fedml.init` does for MPI, on arguments that from now on say MPI and `refine_on: ranks`.

    That each rank has a GPU to itself is seen when all devices are known (mpi/simulation.py).
    """
    refine_on = settings_of(args).given.get("mrtf_args", {}).get("refine_on")
    if refine_on in ("server", "teachers"):
        raise UserError(
            f"backend NCCL is there for refine_on: ranks, but refine_on is {refine_on}, which sends nothing by "
            "NCCL; leave refine_on out (mrtf_args), or set backend: MPI (comm_args)"
        )
    args.backend, args.refine_on, args.mrtf_nccl = "MPI", "ranks", True
    return fedml._init_simulation_mpi(args)


def asked_for_nccl(args: Any) -> bool:
    """Whether the user's word was NCCL, before it became MPI."""
    return getattr(args, "mrtf_nccl", False)
