"""What distillation leaves alone: the caller's tensors, the student's mode, and with no steps everything."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mrtf_fedml.config import MrTFSettings
from mrtf_fedml.refinery.distillation import distill


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def student_with_normalisation() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def problem(samples: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(samples, 4, generator=generator(1))
    return inputs, torch.softmax(torch.randn(samples, 3, generator=generator(2)), -1)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("steps", [0, 5])
def test_mode_is_the_callers(training: bool, steps: int) -> None:
    student = student_with_normalisation().train(training)
    distill(student, *problem(), MrTFSettings(refine_steps=steps, refine_batch_size=4), generator())
    assert [module.training for module in student.modules()] == [training] * 5


def test_frozen_module_keeps_its_mode() -> None:
    student = student_with_normalisation().train()
    student[1].eval()
    distill(student, *problem(), MrTFSettings(refine_steps=5, refine_batch_size=4), generator())
    assert [module.training for module in student.modules()] == [True, True, False, True, True]


@pytest.mark.parametrize("training", [True, False])
def test_zero_steps_change_no_bit(training: bool) -> None:
    student = student_with_normalisation().train(training)
    before = {name: value.clone() for name, value in student.state_dict().items()}
    distill(student, *problem(), MrTFSettings(refine_steps=0), generator())
    for name, value in student.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_student_trains_in_train_mode() -> None:
    # Its BatchNorm learns the server's inputs; 9 samples in batches of 4 would end in a batch of one, which
    # BatchNorm refuses, had it not joined the one before.
    student = student_with_normalisation().eval()
    before = student[1].running_mean.clone()
    distill(student, *problem(), MrTFSettings(refine_steps=4, refine_batch_size=4), generator())
    assert not torch.equal(student[1].running_mean, before)
    assert int(student[1].num_batches_tracked) == 4


def test_inputs_and_targets_are_left_alone() -> None:
    inputs, targets = problem()
    old_inputs, old_targets = inputs.clone(), targets.clone()
    distill(student_with_normalisation(), inputs, targets, MrTFSettings(refine_steps=5), generator())
    assert torch.equal(inputs, old_inputs)
    assert torch.equal(targets, old_targets)
    assert not targets.requires_grad


def test_weights_move_in_place() -> None:
    student = student_with_normalisation()
    parameters = list(student.parameters())
    before = [parameter.detach().clone() for parameter in parameters]
    distill(student, *problem(), MrTFSettings(refine_steps=2), generator())
    assert all(one is other for one, other in zip(parameters, student.parameters(), strict=True))
    assert any(not torch.equal(one, other) for one, other in zip(parameters, before, strict=True))


def test_inputs_without_a_target_are_refused() -> None:
    inputs, targets = problem()
    with pytest.raises(ValueError, match="targets"):
        distill(student_with_normalisation(), inputs, targets[:-1], MrTFSettings(refine_steps=2), generator())
