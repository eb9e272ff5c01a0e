"""Train and eval mode of models."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mrtf_fedml.config import ModelSettings
from mrtf_fedml.models import create_model
from mrtf_fedml.models.modes import eval_mode, is_mode_independent, use_running_statistics


def test_eval_mode_restores_mode_of_each_module():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[1].eval()
    with eval_mode(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == [True, True, False]


def test_eval_mode_restores_modes_after_error():
    model = nn.Linear(2, 2)
    with pytest.raises(KeyError), eval_mode(model):
        raise KeyError
    assert model.training


class Unknown(nn.Module):
    """A user's own, which looks at the mode."""

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.dropout(inputs, training=self.training)


@pytest.mark.parametrize("name", ["mlp", "lenet", "convnet", "vgg8", "fecnn", "resnet8"])
def test_is_mode_independent_of_our_nets_without_batch_norm(name: str) -> None:
    model = create_model(ModelSettings(model=name), (3, 32, 32), classes=5, seed=0)
    inputs = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        same = torch.equal(model.train()(inputs), model.eval()(inputs))
    assert is_mode_independent(model) == same == (name != "resnet8")


def test_is_mode_independent_rejects_unknown_layers() -> None:
    assert is_mode_independent(create_model(ModelSettings(model="charlstm", vocabulary=7), (5,), classes=7, seed=0))
    for layer in (nn.Dropout(0.1), nn.BatchNorm1d(3), Unknown(), nn.LSTM(3, 3, num_layers=2, dropout=0.5)):
        assert not is_mode_independent(nn.Sequential(nn.Linear(3, 3), layer))


def test_use_running_statistics_with_one_value_per_channel():
    layer = nn.BatchNorm1d(3)
    with torch.no_grad():
        layer.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
    model = nn.Sequential(layer).train()
    with pytest.raises(ValueError, match="more than 1 value"):
        model(torch.zeros(1, 3))
    with use_running_statistics(model, samples=1):
        given = model(torch.zeros(1, 3))
        several = model(torch.tensor([[1.0, 1.0, 1.0], [3.0, 3.0, 3.0]]))
    torch.testing.assert_close(given, torch.tensor([[-1.0, -2.0, -3.0]]), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(several, torch.tensor([[-1.0] * 3, [1.0] * 3]), atol=1e-4, rtol=1e-4)
    assert layer.training
    assert not layer._forward_pre_hooks


def test_use_running_statistics_keeps_batch_statistics_of_images_and_frozen_layers():
    trained, frozen = nn.BatchNorm2d(2), nn.BatchNorm2d(2).eval()
    model, picture = nn.Sequential(trained, frozen), torch.randn(1, 2, 4, 4)
    expected = nn.Sequential(nn.BatchNorm2d(2), nn.BatchNorm2d(2).eval())(picture)
    with use_running_statistics(model, samples=1):
        torch.testing.assert_close(model(picture), expected)
    assert trained.num_batches_tracked == 1
    assert trained.training
    assert not frozen.training
