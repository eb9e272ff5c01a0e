"""The device of this process, chosen as FedML chooses it; a GPU that is asked for and missing is refused."""

from __future__ import annotations

from typing import Any

import fedml
import torch

from ..process.gpus import check_gpus, chosen_gpu
from ..process.start import Place

_ALONE = Place()


def device_of_run(args: Any, place: Place = _ALONE) -> torch.device:
    """The device of this process; FedML's own choice, except under MPI, where it needs a mapping even without a GPU."""
    if (args.training_type, args.backend) != ("simulation", "MPI"):
        refuse_missing_gpu(args, visible=torch.cuda.device_count())
        return fedml.device.get_device(args)
    if not getattr(args, "using_gpu", False):
        return torch.device("cpu")
    gpu = chosen_gpu(
        getattr(args, "gpu_mapping_file", None),
        getattr(args, "gpu_mapping_key", None),
        place,
        visible=torch.cuda.device_count(),
    )
    args.gpu_id = gpu
    torch.cuda.set_device(gpu)
    return torch.device("cuda", gpu)


def refuse_missing_gpu(args: Any, visible: int, device: torch.device | None = None) -> None:
    """Stop where `using_gpu` is true and no GPU is to be had; FedML would print a line and take the CPU.

    Args:
        args: FedML's. Its `device_type`, where given, wins over `using_gpu`, as it does for FedML.
        visible: how many GPUs this process sees.
        device: what FedML has chosen already, in a project that asked it; one that is a GPU is well.
    """
    wanted = getattr(args, "using_gpu", False) and getattr(args, "device_type", "gpu") == "gpu"
    if not wanted or (device is not None and device.type != "cpu"):
        return
    alone = (args.training_type, args.backend) == ("simulation", "sp")
    check_gpus(int(getattr(args, "gpu_id", None) or 0) if alone else 0, visible)
