"""Consistency under small moves: where an image goes, and what the student then follows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms import ServerBench
from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureTap
from mrtf_fedml.refinery.distill import DistillationSteps, distill
from mrtf_fedml.refinery.views import drawn_moves, moved

from . import oracle


def test_an_image_moves_and_its_edges_repeat() -> None:
    image = torch.arange(9.0).reshape(1, 1, 3, 3)
    down_and_left = moved(image, torch.tensor([[1, -1]]))[0, 0]
    assert down_and_left.tolist() == [[1, 2, 2], [1, 2, 2], [4, 5, 5]]
    assert torch.equal(moved(image, torch.zeros(1, 2, dtype=torch.long)), image)
    two = torch.stack([image[0], image[0]])
    assert torch.equal(moved(two, torch.tensor([[0, 0], [1, -1]]))[1, 0], down_and_left), "each by its own move"


def test_moves_are_an_eighth_of_a_side_at_most_and_all_are_drawn() -> None:
    generator = torch.Generator().manual_seed(0)
    for height, width, most in ((8, 8, (1, 1)), (28, 28, (4, 4)), (32, 16, (4, 2)), (3, 3, (0, 0))):
        moves = drawn_moves(2000, torch.zeros(1, 1, height, width), generator)
        for axis in (0, 1):
            assert moves[:, axis].unique().tolist() == list(range(-most[axis], most[axis] + 1))


def test_the_student_follows_the_targets_on_moved_images_too() -> None:
    """One step of all samples: the gradient by hand, from the images and from where the generator moves them."""
    rng = np.random.default_rng(0)
    images = torch.tensor(rng.normal(size=(6, 1, 8, 8)))
    targets = torch.tensor(oracle.softmax_rows(rng.normal(size=(6, 3))))
    student = nn.Sequential(nn.Flatten(), nn.Linear(64, 3, bias=False, dtype=torch.float64))
    weight = student[1].weight.detach().numpy().copy()
    distill(student, images, targets, DistillationSteps(1, 0.01, 6, consistency=0.5), torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(3)
    order = torch.randperm(6, generator=generator)
    moves = drawn_moves(6, images, generator)

    def gradient(seen: torch.Tensor) -> np.ndarray:
        rows = seen.flatten(1).numpy()
        return (oracle.softmax_rows(rows @ weight.T) - targets[order].numpy()).T @ rows / 6

    total = gradient(images[order]) + 0.5 * gradient(moved(images[order], moves))
    # Adam's first step is the rate times the gradient's sign, but for 1e-8.
    expected = weight - 0.01 * total / (np.abs(total) + 1e-8)
    np.testing.assert_allclose(student[1].weight.detach().numpy(), expected, rtol=0, atol=1e-9)


def test_what_is_no_image_is_refused() -> None:
    model = nn.Linear(4, 3)
    inputs = torch.zeros(5, 4)
    bench = ServerBench(model, inputs, FeatureTap(model, None, inputs[:2]), 3)
    steps = DistillationSteps(1, 0.01, 2, consistency=1.0)
    with pytest.raises(UserError, match=r"consistency is 1, which moves images, but .* shape \(4,\)"):
        bench.distil(model, inputs, torch.full((5, 3), 1 / 3), steps, torch.Generator())
