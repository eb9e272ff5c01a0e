"""The device of this process, chosen as FedML chooses it."""

from __future__ import annotations

from typing import Any

import fedml
import torch

from ..process.gpus import chosen_gpu
from ..process.start import Place

_ALONE = Place()


def device_of_run(args: Any, place: Place = _ALONE) -> torch.device:
    """The device of this process; FedML's own choice, except under MPI, where it needs a mapping even without a GPU."""
    if (args.training_type, args.backend) != ("simulation", "MPI"):
        return fedml.device.get_device(args)
    if not getattr(args, "using_gpu", False):
        return torch.device("cpu")
    gpu = chosen_gpu(
        getattr(args, "gpu_mapping_file", None),
        getattr(args, "gpu_mapping_key", None),
        place,
        visible=torch.cuda.device_count(),
    )
    if gpu is None:
        return torch.device("cpu")
    args.gpu_id = gpu
    torch.cuda.set_device(gpu)
    return torch.device("cuda", gpu)
