"""In what precision a model computes: float32, or bfloat16 where matrices are multiplied and maps convolved.

Weights, their gradients' sums, losses and optimisers stay in float32 (master weights): within `computing` PyTorch's
autocast chooses bfloat16 operation by operation. On a GPU the same switch gives CUDA's autocast, which is untested.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

FLOAT32, BF16 = "float32", "bf16"


def computing(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """The block's models compute in that precision on that device."""
    if precision == FLOAT32:
        return nullcontext()
    # Without its cache: that keeps a weight's bfloat16 copy to the end of the block, and training changes weights.
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)


def has_bf16() -> bool:
    """Whether this machine multiplies in bfloat16 by itself; where it does not, bfloat16 is many times slower."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    named = ("_is_avx512_bf16_supported", "_is_amx_tile_supported", "_is_arm_bf16_supported")
    return any(bool(getattr(torch.cpu, name)()) for name in named if hasattr(torch.cpu, name))
