import pytest
import torch

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureExtractor, FeCNN


def test_fecnn_number_of_parameters():
    convolutions = (25 * 1 * 32 + 32) + (25 * 32 * 64 + 64)
    head = (7 * 7 * 64 * 2048 + 2048) + (2048 * 62 + 62)
    model = FeCNN((1, 28, 28), 62)
    assert sum(p.numel() for p in model.parameters()) == convolutions + head == 6_603_710


def test_fecnn_features_are_flattened_maps():
    model, inputs = FeCNN((1, 28, 28), 62), torch.randn(3, 1, 28, 28)
    extractor = FeatureExtractor(model, None, inputs[:2])
    with torch.no_grad():
        logits, features = extractor.extract(model, inputs)
        assert torch.equal(features, model.convolutions(inputs))
    assert (logits.shape, features.shape) == ((3, 62), (3, 3136))


def test_fecnn_rejects_small_images():
    with pytest.raises(UserError, match="'fecnn' needs images of at least 4 x 4"):
        FeCNN((1, 3, 9), 4)
