import pytest
import torch

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import VGG8, FeatureExtractor


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_vgg8_number_of_parameters():
    convolutions = sum(
        9 * before * maps + maps for before, maps in [(3, 64), (64, 128), (128, 256), (256, 512), (512, 512)]
    )
    head = (512 * 512 + 512) + (512 * 512 + 512) + (512 * 10 + 10)
    assert parameters(VGG8((3, 32, 32), 10)) == convolutions + head == 4_441_226


def test_vgg8_has_five_convolutions_and_three_linears():
    kinds = [type(module).__name__ for module in VGG8((3, 32, 32), 10).modules()]
    assert (kinds.count("Conv2d"), kinds.count("Linear")) == (5, 3)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 8, 8)], ids=str)
def test_vgg8_features_are_flattened_maps(shape):
    model, inputs = VGG8(shape, 4).eval(), torch.randn(3, *shape)
    extractor = FeatureExtractor(model, None, inputs[:2])
    with torch.no_grad():
        logits, features = extractor.extract(model, inputs)
        assert torch.equal(features, model.convolutions(inputs))
    assert (logits.shape, features.shape) == ((3, 4), (3, 512))


def test_vgg8_large_images_have_more_features():
    assert VGG8((3, 64, 96), 4).head[0].in_features == 512 * 2 * 3
    assert VGG8((2, 9, 33), 4)(torch.randn(2, 2, 9, 33)).shape == (2, 4)


def test_vgg8_initial_weights_keep_signal_scale():
    torch.manual_seed(0)
    features = VGG8((3, 32, 32), 10).convolutions(torch.randn(16, 3, 32, 32))
    assert 0.3 < features.std() < 5


def test_vgg8_rejects_small_images():
    with pytest.raises(UserError, match="at least 8 x 8"):
        VGG8((1, 7, 8), 4)
