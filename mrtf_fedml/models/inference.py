"""Predictions for many samples, batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from .compiled import reading
from .evaluation import device_of, evaluating
from .feature_tap import FeatureTap
from .layout import CHANNELS_LAST, STANDARD, as_laid_out, layout_of
from .positions import rows_of_logits

#: Samples that are read at once, by layout. Maps of 1024 images fill no cache, and each layer would wait for memory;
#: products of matrices want many rows. Both were measured: docs/speed.md.
_BATCH = {CHANNELS_LAST: 64, STANDARD: 1024}

#: Makes room for rows and columns of a dtype on a device: a tensor, or what rows are written into like one.
Allocate = Callable[[int, int, torch.dtype, torch.device], Any]


def _on_device(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(rows, columns, dtype=dtype, device=device)


def predict_logits(model: nn.Module, inputs: Tensor, batch_size: int | None = None) -> Tensor:
    """Logits [M, C] of `inputs` [M, ...], in eval mode and without gradients.

    The result lies on the model's device and is a plain tensor: a constant that later autograd may save, as
    it may not a tensor made in inference mode. Inputs may lie elsewhere and are moved by the batch. A model
    that answers at each of T positions ([N, C, T]) gives [M * T, C], row m * T + t.

    >>> predict_logits(nn.Linear(4, 3), torch.zeros(5, 4), batch_size=2).shape
    torch.Size([5, 3])
    """
    batch_size = _samples_at_once(model, batch_size)
    whole = min(batch_size, len(inputs))
    (logits,) = _predict(
        model, inputs, batch_size, lambda batch: (rows_of_logits(reading(model, batch, whole), len(batch)),)
    )
    return logits


def predict_logits_and_features(
    model: nn.Module, inputs: Tensor, tap: FeatureTap, batch_size: int | None = None, allocate: Allocate = _on_device
) -> tuple[Tensor, Any]:
    """Logits [M, C] and features h(x) [M, D] of `inputs` [M, ...] from the same forwards.

    As `predict_logits`; with T positions per sample both have M * T rows, in the same order. What `allocate` gives is
    where the features go.
    """

    def forward(batch: Tensor) -> tuple[Tensor, ...]:
        logits, features = tap.read(model, batch)
        return rows_of_logits(logits, len(batch)), features

    logits, features = _predict(model, inputs, _samples_at_once(model, batch_size), forward, (_on_device, allocate))
    return logits, features


def _samples_at_once(model: nn.Module, batch_size: int | None) -> int:
    if batch_size is None:
        return _BATCH[layout_of(model) if device_of(model).type == "cpu" else STANDARD]
    if batch_size < 1:
        raise UserError(f"the batch size of predictions is {batch_size}; it must be at least 1")
    return batch_size


def _predict(
    model: nn.Module,
    inputs: Tensor,
    batch_size: int,
    forward: Callable[[Tensor], tuple[Tensor, ...]],
    allocations: tuple[Allocate, ...] = (_on_device,),
) -> list[Any]:
    if len(inputs) == 0:
        raise UserError("there are no inputs to predict: the server's set is empty")
    device, layout = device_of(model), layout_of(model)
    outputs: list[Any] = []
    with evaluating(model):
        for start in range(0, len(inputs), batch_size):
            batch = inputs[start : start + batch_size]
            with torch.inference_mode():
                # A copy, since the model's first layer may work in place.
                parts = forward(as_laid_out(batch.to(device, copy=True), layout))
                if torch.is_autocast_enabled(device.type):
                    # What is compared and averaged later is, in doubles: only the model's own work is in bfloat16.
                    parts = tuple(part.float() for part in parts)
            rows = parts[0].shape[0] // len(batch)
            if not outputs:
                with torch.inference_mode(False):
                    outputs = [
                        allocate(len(inputs) * rows, part.shape[1], part.dtype, part.device)
                        for allocate, part in zip(allocations, parts, strict=True)
                    ]
            for output, part in zip(outputs, parts, strict=True):
                output[start * rows : (start + len(batch)) * rows] = part
    return outputs
