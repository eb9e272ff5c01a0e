from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from mrtf_fedml.report.facts import Answer
from mrtf_fedml.report.samples import MOST_PIXELS, least_certain, picture_of


def pixels(address: str | None) -> np.ndarray:
    assert address is not None
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))))


def test_the_least_certain_come_first_with_their_runner_up() -> None:
    probabilities = np.array([[0.9, 0.05, 0.05], [0.3, 0.3, 0.4], [0.2, 0.5, 0.3], [0.25, 0.5, 0.25]])
    answer = Answer(list("abcd"), probabilities, ["x", "y", "z"])
    samples = least_certain(answer, None, most=3)
    assert [sample.id for sample in samples] == ["b", "c", "d"]
    assert [(sample.label, sample.class_name, sample.runner_up) for sample in samples] == [
        (2, "z", "x"),
        (1, "y", "z"),
        (1, "y", "x"),
    ]
    assert samples[1].runner_up_confidence == pytest.approx(0.3)
    assert all(sample.picture is None for sample in samples)


def test_one_class_has_no_runner_up() -> None:
    assert least_certain(Answer(["a"], np.ones((1, 1)), ["x"]), None)[0].runner_up is None


def test_a_picture_runs_from_black_to_white_whatever_the_scale() -> None:
    assert pixels(picture_of(torch.tensor([[[-1.0, 0.0], [0.0, 1.0]]]))).tolist() == [[0, 128], [128, 255]]
    assert pixels(picture_of(torch.tensor([[[0, 255]]], dtype=torch.uint8))).tolist() == [[0, 255]]
    assert pixels(picture_of(torch.full((1, 2, 2), 7.0))).tolist() == [[0, 0], [0, 0]]


def test_colours_keep_their_place() -> None:
    red = torch.zeros(3, 2, 2)
    red[0] = 1
    assert pixels(picture_of(red)).tolist() == [[[255, 0, 0]] * 2] * 2
    assert pixels(picture_of(torch.cat([red, torch.ones(1, 2, 2)]))).tolist() == [[[255, 0, 0]] * 2] * 2


def test_large_pictures_are_made_small() -> None:
    assert pixels(picture_of(torch.rand(3, 300, 200))).shape == (MOST_PIXELS, 64, 3)


@pytest.mark.parametrize("shape", [(5,), (2, 8, 8), (8, 8), (1, 2, 3, 4)], ids=str)
def test_what_is_no_image_has_no_picture(shape: tuple[int, ...]) -> None:
    assert picture_of(torch.rand(shape)) is None
