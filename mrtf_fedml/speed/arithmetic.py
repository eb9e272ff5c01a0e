"""The least time that the arithmetic needs: operations counted, and this machine's measured rates for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

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


class MemoryMeter:
    """What an optimiser that passes over all weights takes at least: memory is its limit, not arithmetic."""

    #: Adam reads the weights, their gradients and two moments, and writes the weights and the moments.
    _ADAM = 7

    def __init__(self, model: nn.Module) -> None:
        self._from = torch.ones(sum(parameter.numel() for parameter in model.parameters()))
        self._to = torch.ones_like(self._from)

    def adam_seconds(self) -> float:
        """Of one step, at the speed of a copy of so many numbers, which reads once and writes once."""
        return min(cpu_seconds(lambda: self._to.copy_(self._from)) for _ in range(3)) * self._ADAM / 2


class RateMeter:
    """Measures the rates, as often as it is asked: beside each repetition, since a shared machine changes."""

    def __init__(self, convolutional: bool, size: int = 768) -> None:
        generator = torch.Generator().manual_seed(0)
        left, right = (torch.randn(size, size, generator=generator) for _ in range(2))
        self._product = _Work(lambda: left @ right, 2 * size**3)
        self._convolution: _Work | None = None
        if convolutional:
            layer = nn.Conv2d(64, 128, 3, padding=1, bias=False).to(memory_format=torch.channels_last)
            maps = torch.randn(16, 64, 16, 16, generator=generator).to(memory_format=torch.channels_last)
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
