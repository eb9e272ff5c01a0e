"""The precision of a model's computation: float32, or bfloat16 for matrix products and convolutions.

Weights, gradient sums, losses and optimizers stay in float32 (master weights): within `autocast`, PyTorch chooses
bfloat16 per operation. On a GPU this is CUDA's autocast, which is untested.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch

FLOAT32: Final = "float32"
BF16: Final = "bf16"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Within the block, models compute in that precision on that device."""
    if precision == FLOAT32:
        return nullcontext()
    # No cache: it would keep a weight's bfloat16 copy to the end of the block, while training changes the weight.
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)
