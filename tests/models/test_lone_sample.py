"""A batch of one sample and a BatchNorm: trained by the running statistics, and by nothing else than usual."""

import pytest
import torch
from torch import nn

from mrtf_fedml.models.lone_sample import running_statistics


def test_one_value_per_channel_is_normalised_by_the_running_statistics():
    layer = nn.BatchNorm1d(3)
    with torch.no_grad():
        layer.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
    model = nn.Sequential(layer).train()
    with pytest.raises(ValueError, match="more than 1 value"):
        model(torch.zeros(1, 3))
    with running_statistics(model, samples=1):
        given = model(torch.zeros(1, 3))
        several = model(torch.tensor([[1.0, 1.0, 1.0], [3.0, 3.0, 3.0]]))
    torch.testing.assert_close(given, torch.tensor([[-1.0, -2.0, -3.0]]), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(several, torch.tensor([[-1.0] * 3, [1.0] * 3]), atol=1e-4, rtol=1e-4)
    assert layer.training
    assert not layer._forward_pre_hooks


def test_a_picture_has_statistics_of_its_own_and_a_frozen_layer_stays_frozen():
    trained, frozen = nn.BatchNorm2d(2), nn.BatchNorm2d(2).eval()
    model, picture = nn.Sequential(trained, frozen), torch.randn(1, 2, 4, 4)
    expected = nn.Sequential(nn.BatchNorm2d(2), nn.BatchNorm2d(2).eval())(picture)
    with running_statistics(model, samples=1):
        torch.testing.assert_close(model(picture), expected)
    assert trained.num_batches_tracked == 1
    assert trained.training
    assert not frozen.training
