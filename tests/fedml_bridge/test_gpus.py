"""Which device a run gets where hosts have GPUs: the counts are given, since the machine has none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fedml
import pytest
import torch

import mrtf_fedml
from mrtf_fedml.cli import main
from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.arguments import settings_of
from mrtf_fedml.fedml_bridge.devices import refuse_missing_gpu
from mrtf_fedml.fedml_bridge.mpi.refinery import group_backend, require_nccl
from mrtf_fedml.fedml_bridge.nccl import asked_for_nccl, supplied
from tests.conftest import small_config, write_yaml
from tests.fedml_bridge.fedml_project import fedml_arguments


@pytest.fixture(autouse=True)
def _unregistered() -> Iterator[None]:
    mrtf_fedml.unregister()
    yield
    mrtf_fedml.unregister()


def arguments(folder: Path, **changes: Any) -> Any:
    return fedml_arguments(write_yaml(folder / "config.yaml", small_config(**changes)))


def test_a_gpu_that_is_asked_for_and_missing_is_our_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_yaml(tmp_path / "c.yaml", small_config(using_gpu=True, run_dir=str(tmp_path / "run")))
    assert main(["run", "--cf", str(file)]) == 2
    told = capsys.readouterr()
    assert "mrtf: using_gpu is true, but PyTorch sees no GPU here; set using_gpu: false" in told.err
    assert "ML engine" not in told.out, "FedML's words"
    assert not (tmp_path / "run").exists()


def test_a_project_of_fedmls_hears_the_same(tmp_path: Path) -> None:
    mrtf_fedml.register()
    args = arguments(tmp_path, using_gpu=True)
    device = fedml.device.get_device(args)
    assert device.type == "cpu", "FedML goes on without one"
    model, dataset = torch.nn.Linear(64, 10), [0] * 7 + [10]
    with pytest.raises(UserError, match="using_gpu is true"):
        fedml.FedMLRunner(args, device, dataset, model)


def test_injected_gpus_are_enough_for_one_process_by_their_number(tmp_path: Path) -> None:
    args = arguments(tmp_path, using_gpu=True, gpu_id=1)
    refuse_missing_gpu(args, visible=2)
    with pytest.raises(UserError, match="gpu_id is 1"):
        refuse_missing_gpu(args, visible=1)
    refuse_missing_gpu(args, visible=0, device=torch.device("mps"))
    args.device_type = "cpu"
    refuse_missing_gpu(args, visible=0)


def test_nccl_wants_a_gpu_for_each_rank() -> None:
    own = [("alpha", "cuda:0"), ("alpha", "cuda:1"), ("beta", "cuda:0")]
    require_nccl(own)
    assert group_backend(own) == "nccl"
    with pytest.raises(UserError, match=r"ranks 1 and 2 on alpha share cuda:1.*backend: MPI"):
        require_nccl([*own[:2], own[1]])
    with pytest.raises(UserError, match=r"rank 1 on alpha computes on cpu.*using_gpu: true"):
        require_nccl([own[0], ("alpha", "cpu")])


def test_fedmls_init_takes_nccl_as_mpis_ranks(tmp_path: Path) -> None:
    mrtf_fedml.register()
    args = fedml.init(arguments(tmp_path, backend="NCCL"), check_env=False, should_init_logs=False)
    assert (args.backend, args.rank, args.worker_num, asked_for_nccl(args)) == ("MPI", 0, 1, True)
    settings = settings_of(args)
    assert settings.common.backend == "MPI"
    assert settings.given["mrtf_args"]["refine_on"] == "ranks"


def test_nccl_with_nothing_to_send_is_refused(tmp_path: Path) -> None:
    with supplied(), pytest.raises(UserError, match="leave refine_on out"):
        fedml.init(arguments(tmp_path, backend="NCCL", refine_on="server"), check_env=False, should_init_logs=False)


def test_fedmls_own_algorithms_are_told_that_fedml_has_no_nccl(tmp_path: Path) -> None:
    mrtf_fedml.register()
    args = arguments(tmp_path, backend="NCCL", federated_optimizer="FedAvg")
    with pytest.raises(UserError, match="ships no simulator for backend NCCL"):
        fedml.init(args, check_env=False, should_init_logs=False)
    mrtf_fedml.unregister()
    assert not [name for name in sys.modules if name.startswith("fedml.simulation.nccl")]
    with pytest.raises(ModuleNotFoundError):
        fedml.init(args, check_env=False, should_init_logs=False)
