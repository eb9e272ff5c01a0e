"""A pair of tensors, images and classes, out of a file of torch's."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from .memory import Memory
from .reading import damaged
from .source import Array


def read_tensors(path: Path, memory: Memory) -> tuple[Array, Array]:
    """The images and the classes that `torch.save((images, classes), path)` wrote."""
    import torch

    origin = f"data file {str(path)!r}"
    try:
        memory.check(path.stat().st_size, origin)
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                memory.check(sum(member.file_size for member in archive.infolist()), origin)
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(content, tuple | list) or len(content) != 2:
            raise ValueError("it does not hold images and classes")
        return _array(content[0], memory, origin), _array(content[1], memory, origin)
    except UserError:
        raise
    # What torch refuses is code, and what it cannot read is damage; both it tells in errors of every kind.
    except Exception as error:
        raise damaged(path, error) from error


def _array(tensor: Any, memory: Memory, origin: str) -> Array:
    import torch

    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
        raise ValueError("it does not hold images and classes as plain tensors")
    # A tensor may repeat a few bytes of memory without end.
    memory.check(tensor.numel() * tensor.element_size(), origin)
    return np.asarray(tensor.detach())
