from __future__ import annotations

import numpy as np
import pytest
import torch

from mrtf_fedml.data.tensors import to_tensor


def test_grey_bytes_become_one_channel_between_minus_one_and_one() -> None:
    images = np.array([[[0, 51], [102, 255]]], dtype=np.uint8)
    tensor = to_tensor(images)
    assert tensor.dtype == torch.float32
    assert tensor.shape == (1, 1, 2, 2)
    assert torch.allclose(tensor, torch.tensor([[[[-1.0, -0.6], [-0.2, 1.0]]]]))


def test_colour_bytes_get_their_channels_first() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 5, 6, 3), dtype=np.uint8)
    tensor = to_tensor(images)
    assert tensor.shape == (2, 3, 5, 6)
    assert tensor.is_contiguous()
    assert tensor[1, 2, 4, 0].item() == pytest.approx(images[1, 4, 0, 2] / 127.5 - 1, abs=1e-6)


def test_floats_keep_their_values() -> None:
    rows = np.array([[0.25, -7.0], [1e-3, 300.0]])
    assert torch.equal(to_tensor(rows), torch.tensor(rows, dtype=torch.float32))
    images = np.random.default_rng(0).random((2, 4, 4))
    assert torch.equal(to_tensor(images), torch.tensor(images, dtype=torch.float32).unsqueeze(1))


def test_other_numbers_become_float32_as_they_are() -> None:
    for kind in (np.int64, np.int16, np.uint16, bool, np.dtype(">i4"), np.float16):
        tensor = to_tensor(np.array([[0, 1], [1, 1]]).astype(kind))
        assert tensor.dtype == torch.float32, kind
        assert tensor.tolist() == [[0, 1], [1, 1]], kind


def test_rows_of_bytes_are_not_pixels() -> None:
    assert to_tensor(np.array([[0, 255]], dtype=np.uint8)).tolist() == [[0, 255]]


def test_where_the_channels_are() -> None:
    for kind, shape, expected in (
        (np.float32, (2, 8, 8, 3), (2, 3, 8, 8)),
        (np.float32, (2, 3, 8, 8), (2, 3, 8, 8)),
        (np.float32, (2, 16, 8, 8), (2, 16, 8, 8)),
        (np.uint8, (2, 8, 8, 1), (2, 1, 8, 8)),
        (np.uint8, (2, 3, 8, 8), (2, 3, 8, 8)),
        (np.uint8, (2, 8, 9, 2), (2, 2, 8, 9)),
        (np.uint8, (2, 3, 4, 3), (2, 3, 3, 4)),
        (np.float32, (2, 2, 3, 4, 5), (2, 2, 3, 4, 5)),
    ):
        assert to_tensor(np.zeros(shape, kind)).shape == expected, f"{kind.__name__} of {shape}"


def test_the_array_is_not_written_to_nor_shared() -> None:
    array = np.ones((2, 3), dtype=np.float32)
    array.flags.writeable = False
    to_tensor(array).zero_()
    assert array.all()


def test_indices_stay_whole() -> None:
    tensor = to_tensor(np.array([[3, 79]], dtype=np.uint8), tokens=True)
    assert tensor.dtype == torch.int64
    assert tensor.tolist() == [[3, 79]]


def test_colour_is_converted_in_one_copy() -> None:
    images = np.zeros((64, 32, 32, 3), dtype=np.uint8)
    assert to_tensor(images).untyped_storage().nbytes() == images.size * 4
