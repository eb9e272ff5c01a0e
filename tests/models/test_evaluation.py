import pytest
import torch
from torch import nn

from mrtf_fedml.models.evaluation import device_of, evaluating


def test_each_module_returns_to_its_own_mode():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[1].eval()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == [True, True, False]


def test_modes_return_after_an_error():
    model = nn.Linear(2, 2)
    with pytest.raises(KeyError), evaluating(model):
        raise KeyError
    assert model.training


def test_device_is_that_of_the_weights():
    assert device_of(nn.Linear(2, 2, device="meta")) == torch.device("meta")
    assert device_of(nn.BatchNorm1d(2, affine=False, device="meta")) == torch.device("meta")
    assert device_of(nn.ReLU()) == torch.device("cpu")
