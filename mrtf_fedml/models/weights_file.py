"""Weights from files: safetensors, or PyTorch's own format, read without executing anything in it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ..errors import UserError

#: Endings of files in PyTorch's own format, a pickle of which only tensors and containers are read.
TORCH_SUFFIXES = (".pt", ".pth", ".bin")


def read_weights(name: str | Path, key: str) -> dict[str, Tensor]:
    """The state dict in a file, on the CPU.

    Training programs often save `{"state_dict": ..., "epoch": ...}`; then the state dict in it is returned.

    Args:
        name: a .safetensors file, or a .pt, .pth or .bin file by `torch.save`.
        key: the setting that names the file, for messages.

    Raises:
        UserError: the file is missing, damaged, of another format, or has values that are not finite.
    """
    path = Path(os.path.expanduser(name))
    label = f"{key} {str(path)!r}"
    if not path.is_file():
        raise UserError(f"{label} is not a file; correct the path")
    if path.suffix not in (".safetensors", *TORCH_SUFFIXES):
        endings = ", ".join((".safetensors", *TORCH_SUFFIXES))
        raise UserError(f"{label} has an unknown file type; give a state dict in a file that ends in {endings}")
    try:
        content = load_file(path) if path.suffix == ".safetensors" else _load_torch_file(path)
    except (OSError, SafetensorError, pickle.UnpicklingError, EOFError, RuntimeError, ValueError, KeyError) as error:
        reason = (" ".join(str(error).split()) or type(error).__name__)[:200]
        raise UserError(
            f"{label} cannot be read as weights ({reason}); save the model's state_dict() with safetensors or "
            "torch.save"
        ) from None
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict) or not content or not all(isinstance(value, Tensor) for value in content.values()):
        raise UserError(f"{label} has no state dict, a mapping of names to tensors; save model.state_dict()")
    weights = {str(name): tensor.detach() for name, tensor in content.items()}
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise UserError(f"{label} has values in {name!r} that are not finite; use other weights")
    return weights


def _load_torch_file(path: Path) -> object:
    return torch.load(path, map_location="cpu", weights_only=True)
