"""The adapters under FedML's own cross-silo server, which calls the aggregator's three hooks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mrtf_fedml.cli import main
from tests.backends.mpi.conftest import MPIRUN, START_SECONDS, environment
from tests.conftest import small_config, write_yaml

FEDERATION: dict[str, Any] = {
    "client_num_in_total": 2,
    "client_num_per_round": 2,
    "classes_per_client": 5,
    "comm_round": 2,
    "model": "mlp",
    "hidden_size": 16,
    "refine_steps": 5,
    "frequency_of_the_test": 1,
    "preset": "paper",
}


@pytest.mark.slow
def test_hooks_under_fedmls_own_server_give_the_weights_of_our_own_run(tmp_path: Path) -> None:
    config = small_config(run_dir=str(tmp_path / "run"), **FEDERATION)
    assert main(["run", "--cf", str(write_yaml(tmp_path / "ours.yaml", config))]) == 0
    # FedML's server knows this name only; the adapters are given to FedMLRunner.
    changes = {"training_type": "cross_silo", "backend": "MPI", "federated_optimizer": "FedAvg"}
    file = write_yaml(tmp_path / "fedml.yaml", small_config(**FEDERATION, **changes))
    program = Path(__file__).parent / "cross_silo_program.py"
    command = [*MPIRUN, "-n", "3", sys.executable, "-W", "ignore", str(program), str(file), str(tmp_path)]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=START_SECONDS)
    assert (tmp_path / "weights-2.safetensors").exists(), ended.stderr[-3000:]
    ours = load_file(tmp_path / "run" / "model.safetensors")
    fedmls = load_file(tmp_path / "prediction-2.safetensors")
    assert ours.keys() == fedmls.keys()
    for key, value in ours.items():
        assert torch.equal(fedmls[key], value), key
