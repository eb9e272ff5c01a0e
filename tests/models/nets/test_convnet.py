import pytest
import torch

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import ConvNet


def test_convnet_has_parameters_of_fedavg_paper():
    # 32*25+32 = 832; 64*32*25+64 = 51,264; 3136*512+512 = 1,606,144; 512*10+10 = 5,130
    model = ConvNet((1, 28, 28), classes=10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 1_663_370


def test_convnet_flattened_size_by_image_size():
    for shape, flattened in (((3, 32, 32), 4096), ((1, 8, 8), 256), ((2, 30, 5), 448)):
        model = ConvNet(shape, classes=7)
        assert model.convolutions(torch.randn(2, *shape)).shape == (2, flattened), shape
        assert model(torch.randn(2, *shape)).shape == (2, 7), shape


def test_convnet_rejects_small_images():
    with pytest.raises(UserError, match="at least 4 x 4 pixels"):
        ConvNet((1, 28, 2), classes=10)
