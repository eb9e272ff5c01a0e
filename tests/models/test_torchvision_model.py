import logging

import pytest
import torch

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureTap
from mrtf_fedml.models.torchvision_model import torchvision_model


def test_grey_images_reach_it_in_colour(caplog):
    with caplog.at_level(logging.INFO, logger="mrtf_fedml"):
        model = torchvision_model("torchvision:resnet18", (1, 32, 32), 7)
    assert caplog.text.count("sees the grey channel three times") == 1
    inputs = torch.randn(2, 1, 32, 32)
    model.eval()
    with torch.no_grad():
        assert model(inputs).shape == (2, 7)
        torch.testing.assert_close(model(inputs), model(inputs.repeat(1, 3, 1, 1)))
    assert FeatureTap(model, None, inputs).layer == "fc"
    assert next(iter(model.state_dict())) == "conv1.weight"


def test_colour_images_reach_it_as_they_are():
    model = torchvision_model("torchvision:squeezenet1_1", (3, 32, 32), 7)
    assert not model._forward_pre_hooks
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 7)


def test_a_second_head_is_left_out():
    model = torchvision_model("torchvision:googlenet", (3, 32, 32), 4).train()
    assert isinstance(model(torch.randn(2, 3, 32, 32)), torch.Tensor)


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("torchvision:resnet81", (3, 32, 32), "torchvision has no such model; did you mean 'resnet18'"),
        ("torchvision:resnet18", (64,), "wants images of channels x height x width"),
        ("torchvision:resnet18", (4, 32, 32), "3 channels .or 1., but they have 4 here"),
    ],
)
def test_what_does_not_go_gets_a_sentence(name, shape, sentence):
    with pytest.raises(UserError, match=sentence):
        torchvision_model(name, shape, 4)
