"""Eq. 1-2 and 8: the student follows the targets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from mrtf_fedml.config import MrTFSettings
from mrtf_fedml.refinery.distillation import batches, distill, distillation_loss
from mrtf_fedml.rng import fork_rng

from . import oracle


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def linear(width: int, classes: int, seed: int = 0) -> nn.Linear:
    """f(x) = W x in float64, with weights drawn from a local generator."""
    layer = nn.utils.skip_init(nn.Linear, width, classes, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(classes, width, generator=generator(seed), dtype=torch.float64))
    return layer


def soft_targets(samples: int, classes: int, seed: int = 1) -> torch.Tensor:
    return torch.softmax(2 * torch.randn(samples, classes, generator=generator(seed), dtype=torch.float64), -1)


def inputs_of(samples: int, width: int, seed: int = 2) -> torch.Tensor:
    return torch.randn(samples, width, generator=generator(seed), dtype=torch.float64)


def loss_of(student: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    with torch.no_grad():
        return float(distillation_loss(student(inputs), targets))


class Recorder(nn.Module):
    """A linear student that keeps what it was shown and in which mode."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.layer = linear(width, classes)
        self.shown: list[list[int]] = []
        self.modes: list[bool] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.shown.append(inputs[:, 0].long().tolist())
        self.modes.append(self.training)
        return self.layer(inputs)


def test_loss_by_hand() -> None:
    # Logits [0, 0] give [1/2, 1/2]: loss log 2 whatever the target. Logits [log 3, 0] give [3/4, 1/4]; with
    # the target [1, 0] the loss is -log(3/4). The mean of both.
    logits = torch.tensor([[0.0, 0.0], [np.log(3), 0.0]], dtype=torch.float64)
    targets = torch.tensor([[0.3, 0.7], [1.0, 0.0]], dtype=torch.float64)
    expected = (np.log(2) - np.log(0.75)) / 2
    assert float(distillation_loss(logits, targets)) == pytest.approx(expected, abs=1e-12)


def test_loss_agrees_with_the_oracle_and_stands_large_logits() -> None:
    logits, targets = inputs_of(9, 5), soft_targets(9, 5)
    for scale in (0.1, 1.0, 1e4):
        expected = oracle.distillation_loss(logits * scale, targets)
        assert float(distillation_loss(logits * scale, targets)) == pytest.approx(expected, rel=1e-12)


def test_gradient_is_that_of_a_plain_softmax() -> None:
    # Neither std nor tau: (softmax(logits) - targets) / M, whatever the magnitude of the logits.
    logits, targets = (5 * inputs_of(7, 4)).requires_grad_(), soft_targets(7, 4)
    (gradient,) = torch.autograd.grad(distillation_loss(logits, targets), logits)
    expected = (oracle.softmax_rows(logits.detach()) - targets.numpy()) / 7
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-14)


def test_batches_have_every_sample_once_per_pass() -> None:
    # A last batch of one joins the one before: BatchNorm cannot train on a single sample.
    for samples, batch_size, sizes in (
        (6, 2, [2, 2, 2]),
        (7, 3, [3, 4]),
        (8, 3, [3, 3, 2]),
        (5, 64, [5]),
        (65, 64, [65]),
        (1, 4, [1]),
        (3, 2, [3]),
    ):
        where = f"{samples} samples in batches of {batch_size}"
        drawn = [batch.tolist() for batch in batches(samples, batch_size, 4 * len(sizes), generator())]
        assert [len(batch) for batch in drawn] == 4 * sizes, where
        for start in range(0, len(drawn), len(sizes)):
            shown = itertools.chain.from_iterable(drawn[start : start + len(sizes)])
            assert sorted(shown) == list(range(samples)), where


def test_as_many_batches_as_steps() -> None:
    step_counts = [0, 1, 4, 5, 11]
    assert [len(list(batches(40, 8, steps, generator()))) for steps in step_counts] == step_counts


def test_passes_are_shuffled_by_the_generator_alone() -> None:
    def order(seed: int) -> list[int]:
        return torch.cat(list(batches(40, 8, 10, generator(seed)))).tolist()

    state = torch.get_rng_state()
    assert order(5) == order(5)
    assert order(5) != order(6)
    assert order(5)[:40] != order(5)[40:]
    assert order(5)[:40] != list(range(40))
    assert torch.equal(torch.get_rng_state(), state)


def test_distill_uses_every_sample_once_per_pass() -> None:
    # The student reads the sample's number off its input.
    inputs = torch.arange(7, dtype=torch.float64).unsqueeze(1).repeat(1, 2)
    student = Recorder(2, 3)
    distill(student, inputs, soft_targets(7, 3), MrTFSettings(refine_steps=6, refine_batch_size=2), generator())
    training = [shown for shown, mode in zip(student.shown, student.modes, strict=True) if mode]
    assert [len(shown) for shown in training] == [2, 2, 3, 2, 2, 3]
    for start in (0, 3):
        assert sorted(itertools.chain.from_iterable(training[start : start + 3])) == list(range(7))


def test_first_step_of_adam_by_hand() -> None:
    # W = 0, so the student says [1/2, 1/2] of x = 1 and x = 2. Targets [1, 0] and [3/4, 1/4]:
    # dL/dW_0 = mean((1/2 - 1) * 1, (1/2 - 3/4) * 2) = -1/2 and dL/dW_1 = 1/2.
    # Adam's first step is lr * g / (|g| + 1e-8): W = [lr, -lr] but for 2e-8 of it.
    student = nn.Linear(1, 2, bias=False, dtype=torch.float64)
    nn.init.zeros_(student.weight)
    targets = torch.tensor([[1.0, 0.0], [0.75, 0.25]], dtype=torch.float64)
    settings = MrTFSettings(refine_steps=1, refine_lr=0.01, refine_batch_size=2)
    distill(student, torch.tensor([[1.0], [2.0]], dtype=torch.float64), targets, settings, generator())
    np.testing.assert_allclose(student.weight.detach(), [[0.01], [-0.01]], rtol=1e-7)


def test_whole_batches_follow_adam_as_the_oracle_does() -> None:
    for steps in (1, 2, 25):
        student, inputs, targets = linear(4, 3), inputs_of(10, 4), soft_targets(10, 3)
        expected = oracle.adam_on_linear_student(student.weight.detach(), inputs, targets, 0.02, steps)
        settings = MrTFSettings(refine_steps=steps, refine_lr=0.02, refine_batch_size=10, temperature=9)
        distill(student, inputs, targets, settings, generator())
        where = f"{steps} steps"
        np.testing.assert_allclose(student.weight.detach(), expected, rtol=0, atol=1e-9, err_msg=where)


def test_mini_batches_pair_each_input_with_its_target() -> None:
    # x is a unit vector a sample and the targets are reachable, so only the right pairs let the loss reach
    # its minimum, the targets' entropy.
    inputs, targets = torch.eye(9, dtype=torch.float64), soft_targets(9, 3)
    student = linear(9, 3)
    settings = MrTFSettings(refine_steps=240, refine_lr=0.1, refine_batch_size=4)
    distill(student, inputs, targets, settings, generator())
    least = float(oracle.entropy(targets[None]).mean())
    assert loss_of(student, inputs, targets) == pytest.approx(least, abs=1e-3)


def test_student_learns_separable_data() -> None:
    rng = np.random.default_rng(8)
    labels = rng.integers(3, size=120)
    centres = np.array([[4.0, 0.0], [-4.0, 4.0], [-4.0, -4.0]])
    inputs = torch.tensor(centres[labels] + rng.normal(size=(120, 2)) * 0.5)
    targets = torch.tensor(0.05 / 3 + 0.95 * np.eye(3)[labels])
    student = linear(2, 3, seed=4)
    before = loss_of(student, inputs, targets)
    settings = MrTFSettings(refine_steps=150, refine_lr=0.1, refine_batch_size=32)
    distill(student, inputs, targets, settings, generator())
    assert loss_of(student, inputs, targets) < min(0.5 * before, 0.3)
    assert (student(inputs).argmax(-1) == targets.argmax(-1)).double().mean() > 0.98


def test_inputs_may_be_tokens() -> None:
    student = nn.Sequential(nn.Embedding(6, 8), nn.Flatten(), nn.Linear(8, 3)).double()
    inputs, targets = torch.arange(6).unsqueeze(1), soft_targets(6, 3)
    before = loss_of(student, inputs, targets)
    distill(student, inputs, targets, MrTFSettings(refine_steps=60, refine_lr=0.02), generator())
    assert loss_of(student, inputs, targets) < before


def trained_weights(seed: int, dropout: float) -> torch.Tensor:
    between = nn.Dropout(dropout) if dropout else nn.Tanh()
    student = nn.Sequential(linear(4, 6), between, linear(6, 3))
    settings = MrTFSettings(refine_steps=12, refine_lr=0.01, refine_batch_size=5)
    distill(student, inputs_of(17, 4), soft_targets(17, 3), settings, generator(seed))
    return torch.cat([parameter.detach().flatten() for parameter in student.parameters()])


def test_refined_weights_depend_on_the_generator() -> None:
    once = trained_weights(3, dropout=0.0)
    torch.rand(5)  # whoever draws from the global state must not matter
    state = torch.get_rng_state()
    assert torch.equal(trained_weights(3, dropout=0.0), once)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(trained_weights(4, dropout=0.0), once)


def test_dropout_depends_on_the_callers_fork_rng() -> None:
    def forked_weights(*names: str) -> torch.Tensor:
        with fork_rng(0, *names):
            return trained_weights(3, dropout=0.5)

    once = forked_weights("one")
    torch.rand(5)
    state = torch.get_rng_state()
    assert torch.equal(forked_weights("one"), once)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(forked_weights("other"), once)
