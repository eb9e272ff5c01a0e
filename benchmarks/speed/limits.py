"""The least time of the arithmetic: counted operations, measured rates, and the share of time inside products.

The rate of a product depends on its shape: 64 rows reach less than 1024. The least time of a step is therefore the sum
over the products it consists of, each timed alone on tensors of the same shapes and layouts. Timed alone, a product
finds its matrices in the cache; in a step they come from memory. So a step cannot reach that limit. The share of time
inside products, measured while the step runs, can reach 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from mrtf_fedml.models.precision import BF16, FLOAT32, autocast
from mrtf_fedml.refinery.distillation import Adam

from .measure import cpu_seconds


@dataclass(frozen=True)
class Operations:
    """Numbers of floating-point operations: in matrix products and in convolutions."""

    products: int = 0
    convolutions: int = 0

    def __add__(self, other: Operations) -> Operations:
        return Operations(self.products + other.products, self.convolutions + other.convolutions)

    def times(self, number: float) -> Operations:
        """The operations multiplied by a number."""
        return Operations(round(self.products * number), round(self.convolutions * number))


@dataclass(frozen=True)
class Rates:
    """Operations per CPU second."""

    products: float
    convolutions: float

    def seconds(self, operations: Operations) -> float:
        """The least time of these operations."""
        return operations.products / self.products + operations.convolutions / self.convolutions


def count_operations(model: nn.Module, inputs: Tensor, backward: bool) -> Operations:
    """The operations of one forward pass of the batch, and of its backward pass if `backward`."""
    counter = FlopCounterMode(display=False)
    with counter:
        output = model(inputs)
        if backward:
            output.sum().backward()
    counts = counter.get_flop_counts()["Global"]
    convolutions = sum(number for name, number in counts.items() if "convolution" in str(name))
    products = sum(counts.values()) - convolutions + count_recurrent_operations(model, inputs) * (3 if backward else 1)
    return Operations(int(products), int(convolutions))


def count_recurrent_operations(model: nn.Module, inputs: Tensor) -> int:
    """The operations of LSTMs, which PyTorch does not count: 8 H (I + H) per step, sample and layer."""
    total = 0
    for module in model.modules():
        if isinstance(module, nn.LSTM):
            steps = inputs.shape[0] * inputs.shape[1]
            for layer in range(module.num_layers):
                width = module.input_size if layer == 0 else module.hidden_size
                total += steps * 8 * module.hidden_size * (width + module.hidden_size)
    return total


class AdamMeter:
    """Measures one step of Adam on weights of the model's shapes."""

    def __init__(self, model: nn.Module) -> None:
        weights = [nn.Parameter(torch.ones_like(parameter)) for parameter in model.parameters()]
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        self._adam = Adam(weights, weight_decay=0.0)

    def seconds(self) -> float:
        """CPU seconds of one step, the best of three."""
        return min(cpu_seconds(lambda: self._adam.step(rate=1e-3)) for _ in range(3))


class RateMeter:
    """Measures the rates of a precision; repeated with each repetition, since the load of a shared machine changes."""

    def __init__(self, convolutional: bool, precision: str = FLOAT32, size: int = 768) -> None:
        dtype = torch.bfloat16 if precision == BF16 else torch.float32
        generator = torch.Generator().manual_seed(0)
        left, right = (torch.randn(size, size, generator=generator).to(dtype) for _ in range(2))
        self._product = _Work(lambda: left @ right, 2 * size**3)
        self._convolution: _Work | None = None
        if convolutional:
            layer = nn.Conv2d(64, 128, 3, padding=1, bias=False, dtype=dtype).to(memory_format=torch.channels_last)
            maps = torch.randn(16, 64, 16, 16, generator=generator).to(dtype, memory_format=torch.channels_last)
            self._convolution = _Work(lambda: layer(maps), 2 * 16 * 128 * 16 * 16 * 64 * 9)
        self.measure()

    def measure(self) -> Rates:
        """The current rates; without convolutions the rate of products is used for both."""
        products = self._product.rate()
        return Rates(products, products if self._convolution is None else self._convolution.rate())


@dataclass(frozen=True)
class _Work:
    work: Callable[[], object]
    operations: int

    @torch.inference_mode()
    def rate(self) -> float:
        """Operations per second, the best of three trials."""
        return max(self.operations / max(cpu_seconds(self.work), 1e-9) for _ in range(3))


_KINDS = ("aten.mm.", "aten.addmm.", "aten.bmm.", "aten.baddbmm.", "aten.convolution.", "aten.convolution_backward.")
#: Trials per product, of which the best counts.
_TRIALS = 3


class _ProductRecorder(TorchDispatchMode):
    """Records every matrix product and convolution with its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], object]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if str(func).startswith(_KINDS):
            self.calls.append(lambda: func(*args, **given))
        return func(*args, **given)


class Products:
    """The products of one forward pass of a batch, and of its backward pass if `backward`, in a precision."""

    def __init__(self, model: nn.Module, inputs: Tensor, backward: bool, precision: str = FLOAT32) -> None:
        # PyTorch hides the steps of an LSTM; they are counted and divided by the rate of a plain product.
        self._hidden = count_recurrent_operations(model, inputs) * (3 if backward else 1)
        with torch.set_grad_enabled(backward), autocast(precision, inputs.device), _ProductRecorder() as kept:
            # The loss is float32, whatever the model computes in.
            output = model(inputs).float()
            if backward:
                nn.functional.cross_entropy(output, torch.full_like(output, 1 / output.shape[1])).backward()
        self._calls = kept.calls

    def __len__(self) -> int:
        return len(self._calls)

    @torch.inference_mode()
    def seconds(self, rate: float) -> float:
        """The current least time; `rate` is that of a plain product, in operations per second."""
        return self._hidden / rate + sum(min(cpu_seconds(call) for _ in range(_TRIALS)) for call in self._calls)


#: Names of the profiler. oneDNN's recurrent layers include their gates.
_PRODUCTS = frozenset(
    f"aten::{name}"
    for name in (
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "mkldnn_convolution",
        "_slow_conv2d_forward",
        "_slow_conv2d_backward",
        "convolution_backward",
        "mkldnn_rnn_layer",
        "mkldnn_rnn_layer_backward",
    )
)


def share_in_products(work: Callable[[], object]) -> float:
    """The share of the time inside products, from 0 to 1; slightly too low, since recording costs time too.

    >>> from torch import ones
    >>> matrix = ones(300, 300)
    >>> 0.5 < share_in_products(lambda: [matrix @ matrix for _ in range(20)]) <= 1.0
    True
    """
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        work()
    events = seen.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    return sum(event.self_cpu_time_total for event in events if event.key in _PRODUCTS) / total if total else 0.0
