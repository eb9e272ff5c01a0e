"""Small encoders for tests, named in configurations as `tests.encoders.tiny:NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def pooled(images: Tensor) -> Tensor:
    """The mean of each half of an image's rows and of its columns, [N, 4 * channels]."""
    rows, columns = images.mean(dim=3), images.mean(dim=2)
    halves = [part.mean(dim=2) for side in (rows, columns) for part in side.tensor_split(2, dim=2)]
    return torch.cat(halves, dim=1)


def pixels(images: Tensor) -> Tensor:
    """All pixels, twice as large."""
    return 2 * images.flatten(1)


def letters(texts: list[str]) -> Tensor:
    """How often each of the letters a to z occurs, [N, 26]."""
    return torch.tensor([[text.lower().count(chr(97 + index)) for index in range(26)] for text in texts]).float()


def broken(samples: Any) -> Tensor:
    """NaN for every sample."""
    return torch.full((len(samples), 3), float("nan"))


#: Not a function.
CONSTANT = 3


def write_onnx(file: Path, width: int = 5, side: int = 4, seed: int = 0, batch: int | None = None) -> Path:
    """An ONNX file: flattened images [N, 3, side, side] times a random matrix, [N, width]."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    matrix = torch.randn(3 * side * side, width, generator=torch.Generator().manual_seed(seed)).numpy()
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["images"], ["rows"], axis=1),
            helper.make_node("MatMul", ["rows", "matrix"], ["features"]),
        ],
        "encoder",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [batch or "N", 3, side, side])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, [batch or "N", width])],
        [numpy_helper.from_array(matrix, "matrix")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, str(file))
    return file
