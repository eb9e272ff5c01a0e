"""An emulated device takes the step that the twin takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from mrtf_fedml.fedml_bridge.cross_device.device_models import DEVICE_MODELS
from mrtf_fedml.fedml_bridge.cross_device.exchange import Exchange
from mrtf_fedml.fedml_bridge.cross_device.mnn_training import (
    MOMENTUM,
    LocalTraining,
    MnnNetwork,
)


@pytest.mark.parametrize("name", DEVICE_MODELS)
def test_steps_from_the_same_weights_on_the_same_batch_agree(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    exchange = Exchange(name, 5)
    twin = exchange.twin
    file = tmp_path / "model.mnn"
    file.write_bytes(exchange.to_file(twin.state_dict()))
    before = exchange.to_weights(file.read_bytes())
    inputs, labels = torch.rand(12, *twin.input_shape), torch.randint(0, 5, (12,))
    network = MnnNetwork(file)
    # Two steps: the second feels the momentum.
    loss = network.train(inputs.numpy(), labels.numpy(), LocalTraining(2, 12, 0.05), np.random.default_rng(0))
    network.save(file)
    after = exchange.to_weights(file.read_bytes())
    optimiser = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=MOMENTUM)
    losses = []
    for _ in range(2):
        optimiser.zero_grad()
        expected = cross_entropy(twin(inputs), labels)
        expected.backward()
        optimiser.step()
        losses.append(expected.item())
    assert loss == pytest.approx(sum(losses) / 2, abs=1e-3)
    for key, value in twin.state_dict().items():
        torch.testing.assert_close(after[key], value, atol=1e-3, rtol=0)
        assert (value - before[key]).abs().max() > 1e-4, f"{key} did not move"
