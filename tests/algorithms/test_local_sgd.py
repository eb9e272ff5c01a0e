"""Our SGD compared with PyTorch's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms.local_training import LocalSGD
from mrtf_fedml.config import TrainSettings


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.9, 1e-5), (0.0, 0.0), (0.5, 0.1)])
def test_local_sgd_steps_equal_pytorchs_sgd_bitwise(momentum: float, weight_decay: float) -> None:
    settings = TrainSettings(learning_rate=0.03, momentum=momentum, weight_decay=weight_decay)
    ours, theirs = _net(), _net()
    # A frozen layer has no gradient: both pass over it.
    for net in (ours, theirs):
        net[1].requires_grad_(False)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.03, momentum=momentum, weight_decay=weight_decay, fused=True)
    steps = {ours: LocalSGD(list(ours.parameters()), settings), theirs: optimizer}
    for step in range(4):
        inputs = torch.randn(6, 5, generator=torch.Generator().manual_seed(step))
        for net, sgd in steps.items():
            net.zero_grad(set_to_none=True)
            net(inputs).square().sum().backward()
            sgd.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)
    assert not torch.equal(ours[0].weight, _net()[0].weight)
    assert torch.equal(ours[1].weight, _net()[1].weight)


def _net() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 7), nn.Linear(7, 3))
