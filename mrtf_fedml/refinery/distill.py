"""Distillation (Eq. 1-2, 8-9): the student follows fixed soft targets on the server's inputs."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from .adam import Adam
from .clipping import clip_gradients
from .patience import Patience, agreement
from .views import drawn_moves, moved

#: Where a rate that falls by a cosine ends.
_LEAST_RATE = 1e-8


class DistillationSettings(Protocol):
    """How a student is taught; `MrTFSettings` is one, and so is any object with these numbers.

    What else `DistillationSteps` has may be there or not.
    """

    @property
    def refine_steps(self) -> int:
        """Mini-batches; 0 leaves the student as it is."""

    @property
    def refine_lr(self) -> float:
        """Adam's rate."""

    @property
    def refine_batch_size(self) -> int:
        """Samples per mini-batch."""


@dataclass(frozen=True)
class DistillationSteps:
    """How a student is taught, and nothing else.

    Attributes:
        refine_schedule: of the rate; `cosine` lets it fall by half a cosine to almost nothing.
        refine_weight_decay: Adam's.
        refine_clip_norm: the largest norm of a step's gradient; 0 does not clip.
        consistency: the weight of following the targets on moved images too; 0 does not.
        refine_patience: looks without better agreement after which the student is taught no longer; 0 takes all steps.
    """

    refine_steps: int
    refine_lr: float
    refine_batch_size: int
    refine_schedule: str = "constant"
    refine_weight_decay: float = 0.0
    refine_clip_norm: float = 0.0
    consistency: float = 0.0
    refine_patience: int = 0

    @classmethod
    def of(cls, settings: DistillationSettings) -> DistillationSteps:
        """Those of any settings that have the first three; what else they do not have stays as it is here."""
        given = {field.name: getattr(settings, field.name) for field in fields(cls) if hasattr(settings, field.name)}
        return cls(**given)


class Taught(NamedTuple):
    """How a student was taught.

    Attributes:
        loss: the mean over the steps; nan where there was none.
        steps: how many were made.
    """

    loss: float
    steps: int


class Crew(Protocol):
    """Those who distil together: each takes a part of every batch, and all step by the same gradient."""

    def part(self, batch: Tensor) -> Tensor:
        """The indices of the batch that are ours; may be none."""

    def combine(self, student: nn.Module, beside: Tensor) -> Tensor:
        """Sum the gradients over the crew, in place, and return the sums of what each tells, [numbers]."""


def distillation_loss(student_logits: Tensor, targets: Tensor) -> Tensor:
    """Eq. 8: -E_x sum_c q(c|x) log q_g(c|x), q_g the student's plain softmax (no std, no temperature).

    With fixed targets this is the KL divergence of Eq. 1 up to a constant, so the gradients are the same.

    Args:
        student_logits: f(x; theta), [B, C], or [B, C, T] where the student answers at each of T positions.
        targets: q(x), of the same shape.

    Returns:
        the mean over the batch, and over its positions, a scalar.
    """
    return nn.functional.cross_entropy(student_logits, targets)


def batches(samples: int, batch_size: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Index tensors of `steps` mini-batches: shuffled passes without replacement.

    A last batch of one joins the one before it, since BatchNorm cannot train on a single sample.

    >>> [len(b) for b in batches(samples=5, batch_size=2, steps=3, generator=torch.Generator())]
    [2, 3, 2]
    """
    taken = 0
    while taken < steps:
        order = torch.randperm(samples, generator=generator)
        parts = list(order.split(batch_size))
        if len(parts) > 1 and len(parts[-1]) == 1:
            parts[-2:] = [torch.cat(parts[-2:])]
        for part in parts[: steps - taken]:
            yield part
            taken += 1


def distill(
    student: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    settings: DistillationSettings,
    generator: torch.Generator,
    crew: Crew | None = None,
) -> Taught:
    """Eq. 2, `refine_steps` times at most, by a new Adam: the student's weights are updated in place.

    Args:
        student: the aggregated model; trained in train mode, left in the mode it came in.
        inputs: the server's x, [M, ...], on the student's device.
        targets: q(x), [M, C]; [M * T, C], row m * T + t, where the student answers at each of T positions.
        settings: steps, rate, batch size, and how the rate falls, weights decay and gradients are clipped.
        generator: draws the order of the samples, and how images move.
        crew: shares every batch, where several processes distil together; each is given the same arguments.
    """
    if len(targets) == 0 or len(targets) % len(inputs):
        raise ValueError(f"there are {len(targets)} targets for {len(inputs)} inputs; each input needs as many")
    how = DistillationSteps.of(settings)
    by_sample = targets.reshape(len(inputs), -1, targets.shape[1])
    parameters = list(student.parameters())
    optimizer = Adam(parameters, how.refine_weight_decay)
    total = torch.zeros((), device=inputs.device)
    patience = Patience(how.refine_patience, len(inputs), how.refine_batch_size) if how.refine_patience else None
    made = 0
    with training(student):
        for batch in batches(len(inputs), how.refine_batch_size, how.refine_steps, generator):
            # Drawn for the whole batch, so that the generators of a crew stay together.
            moves = drawn_moves(len(batch), inputs, generator) if how.consistency > 0 else None
            part = batch.to(inputs.device)
            if crew is not None:
                part, moves = crew.part(part), None if moves is None else crew.part(moves)
            _forget_gradients(parameters)
            told = [torch.zeros((), device=inputs.device)] * (1 if patience is None else 2)
            if len(part) > 0:
                # The loss in the targets' precision, whatever the student computes in.
                logits = student(_rows(inputs, part)).to(targets.dtype)
                followed = by_sample[part].transpose(1, 2) if logits.dim() == 3 else _rows(targets, part)
                share = len(part) / len(batch)
                loss = _weighed(distillation_loss(logits, followed), share)
                if moves is not None:
                    again = distillation_loss(student(moved(_rows(inputs, part), moves)).to(targets.dtype), followed)
                    loss = loss + _weighed(how.consistency * again, share)
                loss.backward()
                told[0] = loss.detach()
                if patience is not None:
                    told[1] = agreement(logits, followed).to(loss.dtype)
            summed = told if crew is None else crew.combine(student, torch.stack(told))
            if how.refine_clip_norm > 0:
                clip_gradients(parameters, how.refine_clip_norm)
            optimizer.step(refining_rate(how, made))
            total += summed[0]
            made += 1
            if patience is not None and patience.is_over(summed[1], len(batch) * by_sample.shape[1]):
                break
    _forget_gradients(parameters)
    return Taught(float(total) / made if made else float("nan"), made)


def _weighed(loss: Tensor, share: float) -> Tensor:
    """So that the parts of a crew sum to the batch's mean."""
    return loss if share == 1.0 else loss * share


def _rows(samples: Tensor, chosen: Tensor) -> Tensor:
    """A copy of the samples of these indices, laid out as they are."""
    # Row by row in memory, which takes half the time; but it would not keep another layout than the standard one.
    return samples.index_select(0, chosen) if samples.is_contiguous() else samples[chosen]


def _forget_gradients(parameters: Sequence[nn.Parameter]) -> None:
    # Not an optimiser's zero_grad, which opens a block for profilers.
    for parameter in parameters:
        parameter.grad = None


def rate_of_round(rate: float, decay: float, round_index: int) -> float:
    """The refining rate of round t, rate * decay^t.

    >>> rate_of_round(0.1, decay=0.5, round_index=2)
    0.025
    """
    # After very many rounds the number would become 0, which is no rate.
    return max(rate * decay**round_index, sys.float_info.min)


def refining_rate(settings: DistillationSteps, step: int) -> float:
    """Adam's rate in a step, from 0: `cosine` is r(s) = r_min + (r - r_min) (1 + cos(pi s / steps)) / 2.

    >>> [round(refining_rate(DistillationSteps(4, 0.1, 8, "cosine"), step), 4) for step in range(4)]
    [0.1, 0.0854, 0.05, 0.0146]
    """
    if settings.refine_schedule == "constant":
        return settings.refine_lr
    least = min(_LEAST_RATE, settings.refine_lr)
    return least + (settings.refine_lr - least) * (1 + math.cos(math.pi * step / settings.refine_steps)) / 2


@contextmanager
def training(student: nn.Module) -> Iterator[None]:
    """Train mode for the block; each module is then put back in the mode it was in."""
    modes = {module: module.training for module in student.modules()}
    student.train()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
