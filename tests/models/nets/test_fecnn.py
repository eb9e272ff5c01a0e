import pytest
import torch

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureTap, FeCNN


def test_parameters_counted_by_hand():
    convolutions = (25 * 1 * 32 + 32) + (25 * 32 * 64 + 64)
    head = (7 * 7 * 64 * 2048 + 2048) + (2048 * 62 + 62)
    model = FeCNN((1, 28, 28), 62)
    assert sum(p.numel() for p in model.parameters()) == convolutions + head == 6_603_710


def test_features_are_the_flattened_convolutions():
    model, inputs = FeCNN((1, 28, 28), 62), torch.randn(3, 1, 28, 28)
    tap = FeatureTap(model, None, inputs[:2])
    with torch.no_grad():
        logits, features = tap.read(model, inputs)
        assert torch.equal(features, model.convolutions(inputs))
    assert (logits.shape, features.shape) == ((3, 62), (3, 3136))


def test_too_small_an_image_is_refused():
    with pytest.raises(UserError, match="'fecnn' wants images of at least 4 x 4"):
        FeCNN((1, 3, 9), 4)
