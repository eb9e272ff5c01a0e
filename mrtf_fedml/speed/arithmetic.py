"""The least time that the arithmetic needs: operations counted, and this machine's measured rates for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ..models.precision import BF16, FLOAT32
from ..refinery.adam import Adam
from .measure import cpu_seconds


@dataclass(frozen=True)
class Operations:
    """Floating-point operations: of products of matrices, and of convolutions."""

    products: int = 0
    convolutions: int = 0

    def __add__(self, other: Operations) -> Operations:
        return Operations(self.products + other.products, self.convolutions + other.convolutions)

    def times(self, number: float) -> Operations:
        """So often."""
        return Operations(round(self.products * number), round(self.convolutions * number))


@dataclass(frozen=True)
class Rates:
    """Operations per CPU second."""

    products: float
    convolutions: float

    def seconds(self, operations: Operations) -> float:
        """What these take at least."""
        return operations.products / self.products + operations.convolutions / self.convolutions


def operations_of(model: nn.Module, inputs: Tensor, backward: bool) -> Operations:
    """Those of one forward of the batch, and of its backward where asked for."""
    counter = FlopCounterMode(display=False)
    with counter:
        output = model(inputs)
        if backward:
            output.sum().backward()
    counts = counter.get_flop_counts()["Global"]
    convolutions = sum(number for name, number in counts.items() if "convolution" in str(name))
    products = sum(counts.values()) - convolutions + recurrent_operations(model, inputs) * (3 if backward else 1)
    return Operations(int(products), int(convolutions))


def recurrent_operations(model: nn.Module, inputs: Tensor) -> int:
    """PyTorch counts no operation of an LSTM: 8 H (I + H) per step, sample and layer."""
    total = 0
    for module in model.modules():
        if isinstance(module, nn.LSTM):
            steps = inputs.shape[0] * inputs.shape[1]
            for layer in range(module.num_layers):
                width = module.input_size if layer == 0 else module.hidden_size
                total += steps * 8 * module.hidden_size * (width + module.hidden_size)
    return total


class AdamMeter:
    """What Adam's step takes when it is alone, on weights of the model's shapes."""

    def __init__(self, model: nn.Module) -> None:
        weights = [nn.Parameter(torch.ones_like(parameter)) for parameter in model.parameters()]
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        self._adam = Adam(weights, weight_decay=0.0)

    def seconds(self) -> float:
        """Of one step: the best of three, as of a product."""
        return min(cpu_seconds(lambda: self._adam.step(rate=1e-3)) for _ in range(3))


class RateMeter:
    """Measures a precision's rates, as often as it is asked: beside each repetition, since a shared machine changes."""

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
        """The rates now; where nothing is convolved, that of products stands for both."""
        products = self._product.rate()
        return Rates(products, products if self._convolution is None else self._convolution.rate())


@dataclass(frozen=True)
class _Work:
    work: Callable[[], object]
    operations: int

    @torch.inference_mode()
    def rate(self) -> float:
        """The best of three: the limit is what the machine can do."""
        return max(self.operations / max(cpu_seconds(self.work), 1e-9) for _ in range(3))
