"""Gradients whose norm is bounded, without a pass over those that are within the bound."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

#: So far below its bound a gradient's norm is left alone without a second look.
_WELL_WITHIN = 0.999


def clip_gradients(parameters: Sequence[nn.Parameter], bound: float) -> None:
    """What `clip_grad_norm_` does, to the bit, without its pass over gradients that are within the bound already.

    On a GPU they are always scaled: to ask whether one must would make the host wait for every batch.

    >>> weight = nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> clip_gradients([weight], bound=1.0)
    >>> weight.grad
    tensor([0.6000, 0.8000])
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return
    norms = torch._foreach_norm(gradients)
    # Well within the bound the scale is 1, whatever the last bits of the norm are.
    if norms[0].device.type == "cpu" and math.hypot(*(float(norm) for norm in norms)) < _WELL_WITHIN * bound:
        return
    scale = (bound / (torch.linalg.vector_norm(torch.stack(norms)) + 1e-6)).clamp(max=1.0)
    # Of a norm that is not a number nothing is true, and the scale spreads it.
    if scale.is_cuda or not bool(scale == 1.0):
        torch._foreach_mul_(gradients, scale)
