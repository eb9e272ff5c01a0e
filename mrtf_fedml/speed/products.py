"""The products and convolutions of a computation, one by one, and how long each takes when it is alone.

The rate of a product depends on its shape: 64 rows reach less than 1024. The least time of a step is therefore taken
from the very products that it is made of, on tensors of the same shapes and layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ..models.precision import FLOAT32, computing
from .arithmetic import recurrent_operations
from .measure import cpu_seconds

_KINDS = ("aten.mm.", "aten.addmm.", "aten.bmm.", "aten.baddbmm.", "aten.convolution.", "aten.convolution_backward.")
#: The limit is what the machine can do: the best of so many trials.
_TRIALS = 3


class _Kept(TorchDispatchMode):
    """Writes down every product that passes, with what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], object]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if str(func).startswith(_KINDS):
            self.calls.append(lambda: func(*args, **given))
        return func(*args, **given)


class Products:
    """Those of one forward of a batch, and of its backward where asked for, in a precision."""

    def __init__(self, model: nn.Module, inputs: Tensor, backward: bool, precision: str = FLOAT32) -> None:
        # What PyTorch does not show, the steps of an LSTM, is counted, and held against a plain product's rate.
        self._hidden = recurrent_operations(model, inputs) * (3 if backward else 1)
        with torch.set_grad_enabled(backward), computing(precision, inputs.device), _Kept() as kept:
            # The loss is float32, whatever the model computes in.
            output = model(inputs).float()
            if backward:
                nn.functional.cross_entropy(output, torch.full_like(output, 1 / output.shape[1])).backward()
        self._calls = kept.calls

    def __len__(self) -> int:
        return len(self._calls)

    @torch.inference_mode()
    def seconds(self, rate: float) -> float:
        """What they take at least, now; `rate` is that of a plain product."""
        return self._hidden / rate + sum(min(cpu_seconds(call) for _ in range(_TRIALS)) for call in self._calls)
