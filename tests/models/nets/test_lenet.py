import pytest
import torch

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import LeNet


def test_lenet_flattened_size_by_image_size():
    for shape, flattened in (
        ((1, 28, 28), 400),  # 28 -> 28 -> 14 -> 10 -> 5: 16 * 25
        ((3, 32, 32), 400),  # 32 -> 28 -> 14 -> 10 -> 5
        ((1, 8, 8), 64),  # 8 -> 8 -> 4 -> 4 -> 2: 16 * 4
        ((1, 4, 4), 16),
        ((2, 24, 30), 16 * 6 * 7),  # both padded: 24 -> 12 -> 6, 30 -> 15 -> 7
        ((1, 64, 32), 16 * 13 * 5),  # nothing padded: 64 -> 60 -> 30 -> 26 -> 13
    ):
        model = LeNet(shape, classes=10)
        assert model.convolutions(torch.randn(2, *shape)).shape == (2, flattened), shape
        assert model(torch.randn(2, *shape)).shape == (2, 10), shape


def test_lenet_has_parameters_of_the_original():
    # 6*25+6 = 156; 16*6*25+16 = 2,416; 400*120+120 = 48,120; 120*84+84 = 10,164; 84*10+10 = 850
    for shape in [(1, 28, 28), (1, 32, 32)]:
        assert sum(parameter.numel() for parameter in LeNet(shape, 10).parameters()) == 61_706


def test_lenet_rejects_small_images():
    with pytest.raises(UserError, match=r"at least 4 x 4 pixels.*1 x 3 x 9"):
        LeNet((1, 3, 9), classes=10)
