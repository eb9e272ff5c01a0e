"""In what precision a model computes: float32, or bfloat16 where matrices are multiplied and maps convolved.

Weights, their gradients' sums, losses and optimisers stay in float32 (master weights): within `computing` PyTorch's
autocast chooses bfloat16 operation by operation. On a GPU the same switch gives CUDA's autocast, which is untested.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch

FLOAT32: Final = "float32"
BF16: Final = "bf16"


def computing(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """The block's models compute in that precision on that device."""
    if precision == FLOAT32:
        return nullcontext()
    # Without its cache: that keeps a weight's bfloat16 copy to the end of the block, and training changes weights.
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)
