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
from mrtf_fedml.fedml_bridge.args import settings_of
from mrtf_fedml.fedml_bridge.devices import check_gpu_available, check_gpu_per_rank
from tests.conftest import small_config, write_yaml
from tests.fedml_bridge.fedml_project import fedml_arguments


@pytest.fixture(autouse=True)
def _unregistered() -> Iterator[None]:
    mrtf_fedml.unregister()
    yield
    mrtf_fedml.unregister()


def arguments(folder: Path, **changes: Any) -> Any:
    return fedml_arguments(write_yaml(folder / "config.yaml", small_config(**changes)))


def test_run_with_using_gpu_without_gpu_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_yaml(tmp_path / "c.yaml", small_config(using_gpu=True, run_dir=str(tmp_path / "run")))
    assert main(["run", "--cf", str(file)]) == 2
    captured = capsys.readouterr()
    assert "mrtf: using_gpu is true, but PyTorch sees no GPU here; set using_gpu: false" in captured.err
    assert "ML engine" not in captured.out, "FedML's words"
    assert not (tmp_path / "run").exists()


def test_project_with_using_gpu_without_gpu_is_refused(tmp_path: Path) -> None:
    mrtf_fedml.register()
    args = arguments(tmp_path, using_gpu=True)
    device = fedml.device.get_device(args)
    assert device.type == "cpu", "FedML continues without one"
    model, dataset = torch.nn.Linear(64, 10), [0] * 7 + [10]
    with pytest.raises(UserError, match="using_gpu is true"):
        fedml.FedMLRunner(args, device, dataset, model)


def test_check_gpu_available_compares_gpu_id_with_visible_gpus(tmp_path: Path) -> None:
    args = arguments(tmp_path, using_gpu=True, gpu_id=1)
    check_gpu_available(args, visible=2)
    with pytest.raises(UserError, match="gpu_id is 1"):
        check_gpu_available(args, visible=1)
    check_gpu_available(args, visible=0, device=torch.device("mps"))
    args.device_type = "cpu"
    check_gpu_available(args, visible=0)


def test_check_gpu_per_rank_refuses_shared_and_missing_gpus() -> None:
    own = [("alpha", "cuda:0"), ("alpha", "cuda:1"), ("beta", "cuda:0")]
    check_gpu_per_rank(own)
    with pytest.raises(UserError, match=r"ranks 1 and 2 on alpha share cuda:1.*backend: MPI"):
        check_gpu_per_rank([*own[:2], own[1]])
    with pytest.raises(UserError, match=r"rank 1 on alpha computes on cpu.*using_gpu: true"):
        check_gpu_per_rank([own[0], ("alpha", "cpu")])


def test_fedml_init_with_nccl_starts_mpi_ranks(tmp_path: Path) -> None:
    mrtf_fedml.register()
    args = fedml.init(arguments(tmp_path, backend="NCCL"), check_env=False, should_init_logs=False)
    assert (args.backend, args.rank, args.worker_num) == ("NCCL", 0, 1)
    assert args.comm is not None, "started as MPI"
    settings = settings_of(args)
    assert settings.common.backend == "NCCL"


def test_fedml_algorithm_with_nccl_is_refused(tmp_path: Path) -> None:
    mrtf_fedml.register()
    args = arguments(tmp_path, backend="NCCL", federated_optimizer="FedAvg")
    with pytest.raises(UserError, match="ships no simulator for backend NCCL"):
        fedml.init(args, check_env=False, should_init_logs=False)
    mrtf_fedml.unregister()
    assert not [name for name in sys.modules if name.startswith("fedml.simulation.nccl")]
    with pytest.raises(ModuleNotFoundError):
        fedml.init(args, check_env=False, should_init_logs=False)
