"""What a step is made of; no time is looked at."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.speed.limits import Products, share_in_products


def test_products_counts_every_product_of_forward_and_backward() -> None:
    linear = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    assert len(Products(linear, torch.randn(4, 6), backward=False)) == 2
    # Two more for the weights' gradients; of the inputs' only the second layer's is wanted.
    assert len(Products(linear, torch.randn(4, 6), backward=True)) == 5
    convolutional = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    assert len(Products(convolutional, torch.randn(4, 1, 4, 4), backward=True)) == 5


def test_products_counts_the_steps_of_an_lstm() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 5, batch_first=True)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            last: torch.Tensor = self.lstm(inputs)[0][:, -1]
            return last

    products = Products(Last(), torch.randn(2, 3, 4), backward=False)
    # 8 H (I + H) operations per step and sample, at one operation per second, whatever other benchmarks are shown.
    assert products.seconds(rate=1.0) >= 2 * 3 * 8 * 5 * (4 + 5)


class Seen(TorchDispatchMode):
    """The dtype of all that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: list[torch.dtype] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.dtypes.append(result.dtype)
        return result


def test_products_are_timed_in_their_precision() -> None:
    linear = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    for precision, dtype in (("float32", torch.float32), ("bf16", torch.bfloat16)):
        products = Products(linear, torch.randn(4, 6), backward=True, precision=precision)
        with Seen() as seen:
            products.seconds(rate=1.0)
        assert len(seen.dtypes) >= len(products) == 5
        assert set(seen.dtypes) == {dtype}


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(256, 256), (256, 256)),
        (nn.Conv2d(16, 16, 3), (16, 16, 16, 16)),
        (nn.LSTM(32, 64, batch_first=True), (16, 20, 32)),
    ],
)
def test_share_in_products_of_multiplying_layers_is_a_fraction(layer: nn.Module, shape: tuple[int, ...]) -> None:
    inputs = torch.randn(*shape)

    def step() -> None:
        output = layer(inputs)
        (output[0] if isinstance(output, tuple) else output).sum().backward()

    step()
    assert 0.0 < share_in_products(step) <= 1.0


def test_share_in_products_without_products_is_zero() -> None:
    inputs = torch.randn(100, 100)
    assert share_in_products(inputs.exp) == 0.0
    assert share_in_products(lambda: None) == 0.0
