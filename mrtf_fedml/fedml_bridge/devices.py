"""The device of this process, chosen as FedML chooses it; a missing GPU is an error."""

from __future__ import annotations

from typing import Any

import fedml
import torch

from ..errors import UserError
from ..process.gpus import check_gpu, select_gpu
from ..process.mpi import RANKS_BACKENDS, RankInfo

_SINGLE_PROCESS = RankInfo()


def select_device(args: Any, rank: RankInfo = _SINGLE_PROCESS) -> torch.device:
    """The device of this process; FedML's own choice, except under MPI, where it needs a mapping even without a GPU."""
    if args.training_type != "simulation" or args.backend not in RANKS_BACKENDS:
        check_gpu_available(args, visible=torch.cuda.device_count())
        return fedml.device.get_device(args)
    if not getattr(args, "using_gpu", False):
        return torch.device("cpu")
    gpu = select_gpu(
        getattr(args, "gpu_mapping_file", None),
        getattr(args, "gpu_mapping_key", None),
        rank,
        visible=torch.cuda.device_count(),
    )
    args.gpu_id = gpu
    torch.cuda.set_device(gpu)
    return torch.device("cuda", gpu)


def check_gpu_available(args: Any, visible: int, device: torch.device | None = None) -> None:
    """Refuse `using_gpu: true` without a GPU; FedML would print a line and use the CPU.

    Args:
        args: FedML's. Its `device_type`, where given, wins over `using_gpu`, as it does for FedML.
        visible: how many GPUs this process sees.
        device: FedML's choice, in a project that called `get_device`; a GPU passes.
    """
    wanted = getattr(args, "using_gpu", False) and getattr(args, "device_type", "gpu") == "gpu"
    if not wanted or (device is not None and device.type != "cpu"):
        return
    is_single_process = (args.training_type, args.backend) == ("simulation", "sp")
    check_gpu(int(getattr(args, "gpu_id", None) or 0) if is_single_process else 0, visible)


def check_gpu_per_rank(devices: list[tuple[str, str]]) -> None:
    """Refuse `backend: NCCL` unless each rank has a GPU of its own.

    Args:
        devices: the host and the device of each rank.
    """
    reason = None
    for rank, (host, device) in enumerate(devices):
        first = devices.index((host, device))
        if not device.startswith("cuda"):
            reason = f"rank {rank} on {host} computes on {device}"
        elif first != rank:
            reason = f"ranks {first} and {rank} on {host} share {device}"
        if reason is not None:
            raise UserError(
                f"backend NCCL needs a GPU for each rank, but {reason}; set using_gpu: true with as many GPUs as "
                "ranks (device_args, docs/guides/gpus.md), or backend: MPI (comm_args)"
            )
