"""Server and devices convert images in the same way."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mrtf_fedml.data.preprocessing import to_tensor
from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.backends.cross_device.torch_models import resize_images, to_device_inputs


def test_to_device_inputs_divides_grey_levels_by_255() -> None:
    levels = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
    bright = np.full((2, 28, 28), 200, dtype=np.uint8)
    for images in (levels, bright):
        expected = torch.from_numpy(images.astype(np.float32) / 255).unsqueeze(1)
        torch.testing.assert_close(to_device_inputs(to_tensor(images), (1, 28, 28)), expected)


def test_to_device_inputs_keeps_other_values() -> None:
    divided = torch.from_numpy(np.arange(256, dtype=np.float32).reshape(1, 1, 16, 16) / 255)
    assert torch.equal(to_device_inputs(divided, (1, 16, 16)), divided)
    others = torch.randn(3, 1, 28, 28)
    assert torch.equal(to_device_inputs(others, (1, 28, 28)), others)


def test_images_are_resized_to_the_shape_of_the_model() -> None:
    assert resize_images(torch.rand(2, 1, 8, 8), (3, 32, 32)).shape == (2, 3, 32, 32)
    right = torch.rand(2, 1, 28, 28)
    assert resize_images(right, (1, 28, 28)) is right
    for wrong in (torch.rand(2, 3, 28, 28), torch.rand(2, 784)):
        with pytest.raises(UserError, match=r"takes images of shape \(1, 28, 28\)"):
            to_device_inputs(wrong, (1, 28, 28))
