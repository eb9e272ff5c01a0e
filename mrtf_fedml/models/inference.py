"""Predictions for many samples, in batches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..errors import UserError
from .feature_extraction import FeatureExtractor
from .memory_layout import CHANNELS_LAST, STANDARD, model_device, preferred_layout, to_layout
from .modes import eval_mode
from .outputs import logit_rows

#: Batch size by layout, measured (docs/lab/speed.md): feature maps of 1024 images do not fit in the cache, while matrix
#: products are faster with many rows.
_BATCH_SIZES = {CHANNELS_LAST: 64, STANDARD: 1024}


def predict_logits(model: nn.Module, inputs: Tensor, batch_size: int | None = None) -> Tensor:
    """Logits [M, C] of `inputs` [M, ...], in eval mode and without gradients.

    The result is on the model's device. It is a plain tensor that autograd may save, unlike a tensor made in inference
    mode. Inputs may be on another device; they are moved batch by batch. A model that predicts at each of T positions
    ([N, C, T]) gives [M * T, C], row m * T + t.

    >>> predict_logits(nn.Linear(4, 3), torch.zeros(5, 4), batch_size=2).shape
    torch.Size([5, 3])
    """
    batch_size = _check_batch_size(model, batch_size)
    (logits,) = _predict(model, inputs, batch_size, lambda batch: (logit_rows(model(batch), len(batch)),))
    return logits


def predict_logits_and_features(
    model: nn.Module, inputs: Tensor, extractor: FeatureExtractor, batch_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Logits [M, C] and features h(x) [M, D] of `inputs` [M, ...] from the same forwards.

    As `predict_logits`; with T positions per sample both have M * T rows in the same order.
    """

    def forward(batch: Tensor) -> tuple[Tensor, ...]:
        logits, features = extractor.extract(model, batch)
        return logit_rows(logits, len(batch)), features

    logits, features = _predict(model, inputs, _check_batch_size(model, batch_size), forward)
    return logits, features


def _check_batch_size(model: nn.Module, batch_size: int | None) -> int:
    """The batch size, by default that of the model's layout."""
    if batch_size is None:
        return _BATCH_SIZES[preferred_layout(model) if model_device(model).type == "cpu" else STANDARD]
    if batch_size < 1:
        raise UserError(f"the batch size of predictions is {batch_size}; it must be at least 1")
    return batch_size


def _predict(
    model: nn.Module, inputs: Tensor, batch_size: int, forward: Callable[[Tensor], tuple[Tensor, ...]]
) -> list[Tensor]:
    if len(inputs) == 0:
        raise UserError("there are no inputs to predict: the server's set is empty")
    device, layout = model_device(model), preferred_layout(model)
    outputs: list[Tensor] = []
    with eval_mode(model):
        for start in range(0, len(inputs), batch_size):
            batch = inputs[start : start + batch_size]
            with torch.inference_mode():
                # A copy, since the model's first layer may work in place.
                parts = forward(to_layout(batch.to(device, copy=True), layout))
                if torch.is_autocast_enabled(device.type):
                    # Only the model itself computes in bfloat16, not what is computed from its outputs.
                    parts = tuple(part.float() for part in parts)
            rows = parts[0].shape[0] // len(batch)
            if not outputs:
                with torch.inference_mode(False):
                    outputs = [
                        torch.empty(len(inputs) * rows, part.shape[1], dtype=part.dtype, device=part.device)
                        for part in parts
                    ]
            for output, part in zip(outputs, parts, strict=True):
                output[start * rows : (start + len(batch)) * rows] = part
    return outputs
