"""Distillation (Eq. 1-2, 8-9): the student follows fixed soft targets on the server's inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8
#: Where a learning rate with a cosine schedule ends.
_LEAST_RATE = 1e-8
#: Below this fraction of its bound a gradient norm needs no second look.
_WELL_WITHIN = 0.999


class DistillationSettings(Protocol):
    """How a student is trained; `MrTFSettings` is one, and so is any object with these numbers."""

    @property
    def refine_steps(self) -> int:
        """Mini-batches; 0 leaves the student as it is."""

    @property
    def refine_lr(self) -> float:
        """Adam's learning rate."""

    @property
    def refine_batch_size(self) -> int:
        """Samples per mini-batch."""


@dataclass(frozen=True)
class DistillationSteps:
    """How a student is trained, with what the paper does not use.

    Attributes:
        refine_steps: mini-batches.
        refine_lr: Adam's learning rate.
        refine_batch_size: samples per mini-batch.
        schedule: of the learning rate; `cosine` lets it fall by half a cosine to almost nothing.
        weight_decay: Adam's.
        clip_norm: the largest norm of a step's gradient; 0 does not clip.
    """

    refine_steps: int
    refine_lr: float
    refine_batch_size: int
    schedule: Literal["constant", "cosine"] = "constant"
    weight_decay: float = 0.0
    clip_norm: float = 0.0

    @classmethod
    def of(cls, settings: DistillationSettings) -> DistillationSteps:
        """The steps that any settings with the first three values describe."""
        if isinstance(settings, DistillationSteps):
            return settings
        return cls(settings.refine_steps, settings.refine_lr, settings.refine_batch_size)

    def learning_rate(self, step: int) -> float:
        """Adam's rate in a step, from 0: `cosine` is r(s) = r_min + (r - r_min) (1 + cos(pi s / steps)) / 2.

        >>> [round(DistillationSteps(4, 0.1, 8, "cosine").learning_rate(step), 4) for step in range(4)]
        [0.1, 0.0854, 0.05, 0.0146]
        """
        if self.schedule == "constant":
            return self.refine_lr
        least = min(_LEAST_RATE, self.refine_lr)
        return least + (self.refine_lr - least) * (1 + math.cos(math.pi * step / self.refine_steps)) / 2


def distillation_loss(student_logits: Tensor, targets: Tensor) -> Tensor:
    """Eq. 8: -E_x sum_c q(c|x) log q_g(c|x), q_g the student's plain softmax (no std, no temperature).

    With fixed targets this is the KL divergence of Eq. 1 up to a constant, so the gradients are the same.

    Args:
        student_logits: f(x; theta), [B, C], or [B, C, T] where the student predicts at each of T positions.
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
    student: nn.Module, inputs: Tensor, targets: Tensor, settings: DistillationSettings, generator: torch.Generator
) -> float:
    """Eq. 2, `refine_steps` times, by a new Adam: the student's weights are updated in place.

    Args:
        student: the aggregated model; trained in train mode, and left in the mode in which it came.
        inputs: the server's x, [M, ...], on the student's device.
        targets: q(x), [M, C]; [M * T, C], row m * T + t, where the student predicts at each of T positions.
        settings: steps, learning rate and batch size.
        generator: draws the order of the samples.

    Returns:
        the mean loss over the steps; nan where there is none.
    """
    if len(targets) == 0 or len(targets) % len(inputs):
        raise ValueError(f"there are {len(targets)} targets for {len(inputs)} inputs; each input needs as many")
    steps = DistillationSteps.of(settings)
    by_sample = targets.reshape(len(inputs), -1, targets.shape[1])
    parameters = list(student.parameters())
    optimizer = Adam(parameters, steps.weight_decay)
    total = torch.zeros((), device=inputs.device)
    with train_mode(student):
        for step, batch in enumerate(batches(len(inputs), steps.refine_batch_size, steps.refine_steps, generator)):
            chosen = batch.to(inputs.device)
            _clear_gradients(parameters)
            # The loss in the targets' precision, whatever the student computes in.
            logits = student(_select_rows(inputs, chosen)).to(targets.dtype)
            followed = by_sample[chosen].transpose(1, 2) if logits.dim() == 3 else _select_rows(targets, chosen)
            loss = distillation_loss(logits, followed)
            loss.backward()
            if steps.clip_norm > 0:
                clip_gradients(parameters, steps.clip_norm)
            optimizer.step(steps.learning_rate(step))
            total += loss.detach()
    _clear_gradients(parameters)
    return float(total) / steps.refine_steps if steps.refine_steps else float("nan")


def _select_rows(samples: Tensor, chosen: Tensor) -> Tensor:
    """A copy of the samples of these indices, in their memory layout."""
    # Row by row in memory takes half the time, but would not keep another layout than the standard one.
    return samples.index_select(0, chosen) if samples.is_contiguous() else samples[chosen]


def _clear_gradients(parameters: Sequence[nn.Parameter]) -> None:
    # Not an optimizer's zero_grad, which opens a block for profilers.
    for parameter in parameters:
        parameter.grad = None


@contextmanager
def train_mode(student: nn.Module) -> Iterator[None]:
    """Train mode for the block; each module is then put back in the mode it was in."""
    modes = {module: module.training for module in student.modules()}
    student.train()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


class _Moments(NamedTuple):
    """Of one parameter: the means of its gradients and of their squares, and its number of steps."""

    first: Tensor
    second: Tensor
    steps: Tensor


class Adam:
    """The steps of `torch.optim.Adam(fused=True)`, to the bit: the same kernel, called by its functional form.

    It leaves out what an Optimizer does around each step: a block for profilers, and looking up state by parameter.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], weight_decay: float) -> None:
        self._parameters = parameters
        self._weight_decay = weight_decay
        self._moments: list[_Moments | None] = [None] * len(parameters)

    def step(self, rate: float) -> None:
        """Make one step; a parameter without a gradient stays as it is."""
        parameters: list[Tensor] = []
        gradients: list[Tensor] = []
        moments: list[_Moments] = []
        for place, parameter in enumerate(self._parameters):
            if parameter.grad is not None:
                parameters.append(parameter)
                gradients.append(parameter.grad)
                moments.append(self._moments_at(place))
        with torch.no_grad():
            adam(
                parameters,
                gradients,
                [moment.first for moment in moments],
                [moment.second for moment in moments],
                [],
                [moment.steps for moment in moments],
                fused=True,
                amsgrad=False,
                beta1=_BETAS[0],
                beta2=_BETAS[1],
                lr=rate,
                weight_decay=self._weight_decay,
                eps=_EPSILON,
                maximize=False,
            )

    def _moments_at(self, place: int) -> _Moments:
        known = self._moments[place]
        if known is None:
            parameter = self._parameters[place]
            known = self._moments[place] = _Moments(
                torch.zeros_like(parameter, requires_grad=False),
                torch.zeros_like(parameter, requires_grad=False),
                torch.zeros((), dtype=torch.float32, device=parameter.device),
            )
        return known


def clip_gradients(parameters: Sequence[nn.Parameter], bound: float) -> None:
    """`clip_grad_norm_`, to the bit, without its pass over gradients that are within the bound already.

    On a GPU they are always scaled: a comparison would make the host wait for every batch.

    >>> weight = nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> clip_gradients([weight], bound=1.0)
    >>> weight.grad
    tensor([0.6000, 0.8000])
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return
    norms = torch._foreach_norm(gradients)
    # Well within the bound the scale is 1, whatever the last bits of the norm are.
    if norms[0].device.type == "cpu" and math.hypot(*(float(norm) for norm in norms)) < _WELL_WITHIN * bound:
        return
    scale = (bound / (torch.linalg.vector_norm(torch.stack(norms)) + 1e-6)).clamp(max=1.0)
    # Comparisons with nan are false, so the scale spreads it.
    if scale.is_cuda or not bool(scale == 1.0):
        torch._foreach_mul_(gradients, scale)
