"""What counts as a product, by what is done; no time is looked at."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mrtf_fedml.speed.within import share_within_products


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(256, 256), (256, 256)),
        (nn.Conv2d(16, 16, 3), (16, 16, 16, 16)),
        (nn.LSTM(32, 64, batch_first=True), (16, 20, 32)),
    ],
)
def test_layers_that_multiply_spend_their_time_in_products(layer: nn.Module, shape: tuple[int, ...]) -> None:
    inputs = torch.randn(*shape)

    def step() -> None:
        answer = layer(inputs)
        (answer[0] if isinstance(answer, tuple) else answer).sum().backward()

    step()
    assert 0.2 < share_within_products(step) <= 1.0


def test_what_multiplies_nothing_spends_none() -> None:
    inputs = torch.randn(100, 100)
    assert share_within_products(inputs.exp) == 0.0
    assert share_within_products(lambda: None) == 0.0
