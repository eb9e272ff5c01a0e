from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from mrtf_fedml.report.run_data import Predictions
from mrtf_fedml.report.samples import MAX_PIXELS, least_confident_samples, to_data_url


def pixels(address: str | None) -> np.ndarray:
    assert address is not None
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))))


def test_least_confident_samples_are_sorted_with_second_class() -> None:
    probabilities = np.array([[0.9, 0.05, 0.05], [0.3, 0.3, 0.4], [0.2, 0.5, 0.3], [0.25, 0.5, 0.25]])
    predictions = Predictions(list("abcd"), probabilities, ["x", "y", "z"])
    samples = least_confident_samples(predictions, None, limit=3)
    assert [sample.id for sample in samples] == ["b", "c", "d"]
    assert [(sample.label, sample.class_name, sample.second_class) for sample in samples] == [
        (2, "z", "x"),
        (1, "y", "z"),
        (1, "y", "x"),
    ]
    assert samples[1].second_confidence == pytest.approx(0.3)
    assert all(sample.image is None for sample in samples)


def test_single_class_has_no_second_class() -> None:
    assert least_confident_samples(Predictions(["a"], np.ones((1, 1)), ["x"]), None)[0].second_class is None


def test_data_url_scales_from_black_to_white() -> None:
    assert pixels(to_data_url(torch.tensor([[[-1.0, 0.0], [0.0, 1.0]]]))).tolist() == [[0, 128], [128, 255]]
    assert pixels(to_data_url(torch.tensor([[[0, 255]]], dtype=torch.uint8))).tolist() == [[0, 255]]
    assert pixels(to_data_url(torch.full((1, 2, 2), 7.0))).tolist() == [[0, 0], [0, 0]]


def test_data_url_keeps_colours() -> None:
    red = torch.zeros(3, 2, 2)
    red[0] = 1
    assert pixels(to_data_url(red)).tolist() == [[[255, 0, 0]] * 2] * 2
    assert pixels(to_data_url(torch.cat([red, torch.ones(1, 2, 2)]))).tolist() == [[[255, 0, 0]] * 2] * 2


def test_data_url_reduces_large_images() -> None:
    assert pixels(to_data_url(torch.rand(3, 300, 200))).shape == (MAX_PIXELS, 64, 3)


@pytest.mark.parametrize("shape", [(5,), (2, 8, 8), (8, 8), (1, 2, 3, 4)], ids=str)
def test_data_url_of_other_shapes_is_none(shape: tuple[int, ...]) -> None:
    assert to_data_url(torch.rand(shape)) is None
