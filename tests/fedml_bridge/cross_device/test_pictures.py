"""Server and devices give the network the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mrtf_fedml.data.tensors import to_tensor
from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.cross_device.pictures import as_on_device, fitted


def test_grey_levels_are_divided_by_255_as_the_app_does() -> None:
    levels = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
    bright = np.full((2, 28, 28), 200, dtype=np.uint8)
    for pictures in (levels, bright):
        expected = torch.from_numpy(pictures.astype(np.float32) / 255).unsqueeze(1)
        torch.testing.assert_close(as_on_device(to_tensor(pictures), (1, 28, 28)), expected)


def test_other_numbers_keep_their_values() -> None:
    divided = torch.from_numpy(np.arange(256, dtype=np.float32).reshape(1, 1, 16, 16) / 255)
    assert torch.equal(as_on_device(divided, (1, 16, 16)), divided)
    others = torch.randn(3, 1, 28, 28)
    assert torch.equal(as_on_device(others, (1, 28, 28)), others)


def test_pictures_are_brought_to_the_shape_that_the_file_takes() -> None:
    assert fitted(torch.rand(2, 1, 8, 8), (3, 32, 32)).shape == (2, 3, 32, 32)
    right = torch.rand(2, 1, 28, 28)
    assert fitted(right, (1, 28, 28)) is right
    for wrong in (torch.rand(2, 3, 28, 28), torch.rand(2, 784)):
        with pytest.raises(UserError, match=r"takes pictures of shape \(1, 28, 28\)"):
            as_on_device(wrong, (1, 28, 28))
