import pytest
import torch
from torch import nn

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureExtractor, ResNet
from mrtf_fedml.models.nets.resnet import ResidualBlock


def block(before, maps):
    """Weights of one block: two convolutions without bias, two batch normalisations of two numbers a map."""
    return 9 * before * maps + 9 * maps * maps + 4 * maps


@pytest.mark.parametrize(("blocks", "expected"), [(1, 75_290), (3, 269_722)])
def test_resnet_number_of_parameters(blocks, expected):
    first = 9 * 3 * 16 + 2 * 16
    stages = sum(block(b, m) + (blocks - 1) * block(m, m) for b, m in [(16, 16), (16, 32), (32, 64)])
    model = ResNet((3, 32, 32), 10, blocks)
    assert sum(p.numel() for p in model.parameters()) == first + stages + 64 * 10 + 10 == expected
    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    assert len(layers) == 6 * blocks + 2


def test_residual_block_shortcut_pads_with_zeros():
    unit = ResidualBlock(2, 4, stride=2).eval()
    nn.init.zeros_(unit.convolution2.weight)
    inputs = torch.rand(1, 2, 5, 5)
    with torch.no_grad():
        output = unit(inputs)
    assert torch.equal(output[:, 1:3], inputs[:, :, ::2, ::2])
    assert not output[:, [0, 3]].any()


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 9, 8)], ids=str)
def test_resnet_features_are_output_of_convolutions(shape):
    model, inputs = ResNet(shape, 4, blocks=1).eval(), torch.randn(3, *shape)
    extractor = FeatureExtractor(model, None, inputs[:2])
    with torch.no_grad():
        logits, features = extractor.extract(model, inputs)
        assert torch.equal(features, model.convolutions(inputs))
    assert (extractor.layer, logits.shape, features.shape) == ("classifier", (3, 4), (3, 64))


def test_resnet_rejects_samples_that_are_not_images():
    with pytest.raises(UserError, match="'resnet20' needs images"):
        ResNet((64,), 4, blocks=3)
