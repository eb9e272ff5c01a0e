"""How a process was started, and with how many threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from mrtf_fedml.errors import UserError
from mrtf_fedml.process.start import check_backend, check_start
from mrtf_fedml.process.threads import set_threads
from mrtf_fedml.process.waiting import wait_passively


def test_threads_asked_for_by_the_environment_win(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        assert set_threads(3, default=2) == torch.get_num_threads() == 1
        monkeypatch.delenv("OMP_NUM_THREADS")
        assert set_threads(3, default=2) == torch.get_num_threads() == 3
        assert set_threads(None, default=2) == torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_other_ways_of_running_are_not_our_business() -> None:
    check_start("cross_silo", "MPI", "server", ranks=1)
    check_start("simulation", "sp", "server", ranks=1)
    with pytest.raises(UserError, match="refine_on"):
        check_start("cross_silo", "GRPC", "ranks", ranks=1)


def test_a_backend_that_no_simulation_takes() -> None:
    with pytest.raises(UserError, match=r"comm_args.backend is 'MPI2', which no simulation takes; did you mean 'MPI'"):
        check_backend("simulation", "MPI2")
    check_backend("simulation", "NCCL")
    check_backend("cross_silo", "GRPC")


def test_nccl_is_started_as_mpi_is() -> None:
    check_start("simulation", "NCCL", "ranks", ranks=2)
    with pytest.raises(UserError, match=r"backend NCCL needs a server and at least one trainer.*mpirun -n"):
        check_start("simulation", "NCCL", "server", ranks=1)


def test_threads_wait_passively_unless_the_user_has_said_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    wait_passively()
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setenv("KMP_BLOCKTIME", "200")
    wait_passively()
    assert int(os.environ["GOMP_SPINCOUNT"]) > 0
    assert os.environ["KMP_BLOCKTIME"] == "200"
    # The command line does so before anything has loaded PyTorch, whose OpenMP reads it once.
    code = (
        "import sys, mrtf_fedml.process.waiting as waiting, mrtf_fedml.cli as cli\n"
        "cli.wait_passively = lambda: print('torch' in sys.modules)\n"
        "cli.main(['bench', 'no such'])\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.stdout.strip() == "False"
