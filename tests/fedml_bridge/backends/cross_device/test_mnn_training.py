"""MNN's training step equals PyTorch's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from mrtf_fedml.fedml_bridge.backends.cross_device.device_models import DEVICE_MODELS, ModelConverter
from mrtf_fedml.fedml_bridge.backends.cross_device.mnn_training import (
    MOMENTUM,
    MnnNetwork,
    TrainingParameters,
)


@pytest.mark.parametrize("name", DEVICE_MODELS)
def test_steps_of_mnn_and_torch_from_equal_weights_are_close(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    converter = ModelConverter(name, 5)
    model = converter.torch_model
    file = tmp_path / "model.mnn"
    file.write_bytes(converter.to_mnn(model.state_dict()))
    before = converter.to_state_dict(file.read_bytes())
    inputs, labels = torch.rand(12, *model.input_shape), torch.randint(0, 5, (12,))
    network = MnnNetwork(file)
    # Two steps: the second feels the momentum.
    loss = network.train(inputs.numpy(), labels.numpy(), TrainingParameters(2, 12, 0.05), np.random.default_rng(0))
    network.save(file)
    after = converter.to_state_dict(file.read_bytes())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=MOMENTUM)
    losses = []
    for _ in range(2):
        optimiser.zero_grad()
        expected = cross_entropy(model(inputs), labels)
        expected.backward()
        optimiser.step()
        losses.append(expected.item())
    assert loss == pytest.approx(sum(losses) / 2, abs=1e-3)
    for key, value in model.state_dict().items():
        torch.testing.assert_close(after[key], value, atol=1e-3, rtol=0)
        assert (value - before[key]).abs().max() > 1e-4, f"{key} did not move"
