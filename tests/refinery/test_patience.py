"""Distillation that ends when the student names the classes of its targets, and no better for a while."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mrtf_fedml.algorithms import UWA, FedBE, FedDF, MrTF
from mrtf_fedml.refinery.distill import DistillationSteps, Taught, distill
from mrtf_fedml.refinery.patience import LONGEST_LOOK
from mrtf_fedml.settings import RunSettings

from ..algorithms.test_server_rules import finish


def taught(patience: int, samples: int = 40, steps: int = 60, own: bool = True) -> tuple[Taught, Tensor]:
    """A linear student, with targets that name its own classes or with random ones; and its weights after it."""
    generator = torch.Generator().manual_seed(0)
    student, inputs = nn.Linear(6, 3), torch.randn(samples, 6, generator=generator)
    with torch.no_grad():
        student.weight.copy_(torch.randn(3, 6, generator=generator))
        student.bias.zero_()
        said = student(inputs) if own else torch.randn(samples, 3, generator=generator)
    how = DistillationSteps(steps, 0.001, 10, refine_patience=patience)
    done = distill(student, inputs, (3 * said).softmax(dim=1), how, torch.Generator().manual_seed(1))
    return done, student.weight.detach()


def test_a_student_that_agrees_is_taught_no_longer() -> None:
    # A pass has 4 steps. The first look finds the best agreement there is; each after it finds none better.
    for patience in (1, 3):
        assert taught(patience)[0].steps == 4 * (1 + patience)
    # A pass over 400 samples would have 40.
    assert taught(1, samples=400)[0].steps == 2 * LONGEST_LOOK


def test_to_look_changes_nothing() -> None:
    for own in (True, False):
        (never, weights), (patient, watched) = (taught(patience, own=own) for patience in (0, 99))
        assert never == patient
        assert never.steps == 60
        assert torch.equal(weights, watched)


@pytest.mark.parametrize("algorithm", [MrTF, FedDF, FedBE, UWA])
def test_every_algorithm_that_distils_may_end_early(algorithm: Any) -> None:
    def steps(**refinery: Any) -> Any:
        own = {"refine_steps": 80, "refine_lr": 1e-6, "refine_batch_size": 8, **refinery}
        _, report, _ = finish(algorithm(RunSettings.from_config({"mrtf_args": own})))
        return report.metrics.get("steps_made")

    assert steps() is None
    assert 0 < steps(refine_patience=1) < 80
