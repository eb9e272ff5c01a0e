"""Checks of how a simulation was started."""

from __future__ import annotations

import pytest

from mrtf_fedml.errors import UserError
from mrtf_fedml.process.mpi import check_backend, check_start


def test_check_start_accepts_one_process_without_mpi_simulation() -> None:
    check_start("cross_silo", "MPI", ranks=1)
    check_start("simulation", "sp", ranks=1)


def test_check_backend_rejects_unknown_simulation_backend() -> None:
    with pytest.raises(UserError, match=r"comm_args.backend is 'MPI2'.*did you mean 'MPI'"):
        check_backend("simulation", "MPI2")
    check_backend("simulation", "NCCL")
    check_backend("cross_silo", "GRPC")


def test_check_start_of_nccl_needs_two_ranks() -> None:
    check_start("simulation", "NCCL", ranks=2)
    with pytest.raises(UserError, match=r"backend NCCL needs a server and at least one trainer.*mpirun -n"):
        check_start("simulation", "NCCL", ranks=1)
