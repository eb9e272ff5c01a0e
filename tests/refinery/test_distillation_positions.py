"""A student that predicts at every position of a sample: each position counts as a sample."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mrtf_fedml.config import MrTFSettings
from mrtf_fedml.refinery.distillation import distill, distillation_loss

SAMPLES, POSITIONS, WIDTH, CLASSES = 6, 4, 3, 5


class AtEachPosition(nn.Module):
    """One Linear at each position: [N, T, D] -> [N, C, T]."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, CLASSES, dtype=torch.float64)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs).transpose(1, 2)


def case() -> tuple[AtEachPosition, nn.Linear, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    student, row_student = AtEachPosition(), nn.Linear(WIDTH, CLASSES, dtype=torch.float64)
    row_student.load_state_dict(student.layer.state_dict())
    inputs = torch.randn(SAMPLES, POSITIONS, WIDTH, generator=generator, dtype=torch.float64)
    targets = torch.randn(SAMPLES * POSITIONS, CLASSES, generator=generator, dtype=torch.float64).softmax(1)
    return student, row_student, inputs, targets


def test_distillation_loss_is_the_mean_over_samples_and_positions() -> None:
    student, row_student, inputs, targets = case()
    by_position = targets.reshape(SAMPLES, POSITIONS, CLASSES).transpose(1, 2)
    loss = distillation_loss(student(inputs), by_position)
    torch.testing.assert_close(loss, distillation_loss(row_student(inputs.flatten(0, 1)), targets))


def test_whole_batches_equal_distillation_on_the_rows() -> None:
    student, row_student, inputs, targets = case()
    settings = MrTFSettings(refine_steps=7, refine_lr=0.05, refine_batch_size=SAMPLES * POSITIONS)
    loss = distill(student, inputs, targets, settings, torch.Generator().manual_seed(1))
    row_loss = distill(row_student, inputs.flatten(0, 1), targets, settings, torch.Generator().manual_seed(2))
    assert loss == pytest.approx(row_loss)
    torch.testing.assert_close(student.layer.weight, row_student.weight)


def test_mini_batches_pair_each_position_with_its_target() -> None:
    """Targets that the student already gives leave it where it is; any mix-up would move it."""
    student, _, inputs, _ = case()
    before = student.layer.weight.detach().clone()
    with torch.no_grad():
        targets = student(inputs).softmax(1).transpose(1, 2).flatten(0, 1)
    distill(student, inputs, targets, MrTFSettings(refine_steps=1, refine_batch_size=2), torch.Generator())
    moved = (student.layer.weight - before).abs().max()
    swapped, _, _, _ = case()
    swapped.layer.load_state_dict({"weight": before, "bias": swapped.layer.bias})
    distill(swapped, inputs, targets.flip(0), MrTFSettings(refine_steps=1, refine_batch_size=2), torch.Generator())
    # Adam's first step has the size of the rate wherever a gradient is above its epsilon.
    assert moved < 1e-5 < (swapped.layer.weight - before).abs().max()


@pytest.mark.parametrize("targets", [0, 5, 7])
def test_targets_that_are_no_multiple_of_the_inputs_are_refused(targets: int) -> None:
    student, _, inputs, _ = case()
    with pytest.raises(ValueError, match=f"{targets} targets for 6 inputs"):
        distill(student, inputs, torch.ones(targets, CLASSES), MrTFSettings(), torch.Generator())
