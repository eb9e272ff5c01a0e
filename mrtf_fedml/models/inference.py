"""Predictions for many samples, batch by batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..errors import UserError
from .evaluation import device_of, evaluating
from .feature_tap import FeatureTap
from .layout import as_laid_out, layout_of
from .positions import rows_of_logits


def predict_logits(model: nn.Module, inputs: Tensor, batch_size: int = 1024) -> Tensor:
    """Logits [M, C] of `inputs` [M, ...], in eval mode and without gradients.

    The result lies on the model's device and is a plain tensor: a constant that later autograd may save, as
    it may not a tensor made in inference mode. Inputs may lie elsewhere and are moved by the batch. A model
    that answers at each of T positions ([N, C, T]) gives [M * T, C], row m * T + t.

    >>> predict_logits(nn.Linear(4, 3), torch.zeros(5, 4), batch_size=2).shape
    torch.Size([5, 3])
    """
    (logits,) = _predict(model, inputs, batch_size, lambda batch: (rows_of_logits(model(batch), len(batch)),))
    return logits


def predict_logits_and_features(
    model: nn.Module, inputs: Tensor, tap: FeatureTap, batch_size: int = 1024
) -> tuple[Tensor, Tensor]:
    """Logits [M, C] and features h(x) [M, D] of `inputs` [M, ...] from the same forwards.

    As `predict_logits`; with T positions per sample both have M * T rows, in the same order.
    """

    def forward(batch: Tensor) -> tuple[Tensor, ...]:
        logits, features = tap.read(model, batch)
        return rows_of_logits(logits, len(batch)), features

    logits, features = _predict(model, inputs, batch_size, forward)
    return logits, features


def _predict(
    model: nn.Module, inputs: Tensor, batch_size: int, forward: Callable[[Tensor], tuple[Tensor, ...]]
) -> list[Tensor]:
    if len(inputs) == 0:
        raise UserError("there are no inputs to predict: the server's set is empty")
    if batch_size < 1:
        raise UserError(f"the batch size of predictions is {batch_size}; it must be at least 1")
    device, layout = device_of(model), layout_of(model)
    outputs: list[Tensor] = []
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
                        torch.empty(len(inputs) * rows, part.shape[1], dtype=part.dtype, device=part.device)
                        for part in parts
                    ]
            for output, part in zip(outputs, parts, strict=True):
                output[start * rows : (start + len(batch)) * rows].copy_(part)
    return outputs
