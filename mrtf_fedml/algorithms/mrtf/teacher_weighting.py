"""How much each local model contributes to the ensemble on each sample (`mrtf_args.teacher_weighting`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...refinery.ensemble import entropy, entropy_weights, familiarity_share, familiarity_weights
from ...refinery.teachers import Teachers
from .components import Component, RoundContext


class TeacherWeighting(Component):
    """The weights w_k(x) of the local models, by which Eq. 7 or Eq. 3 averages them.

    A complete one: the larger the margin between a model's two largest probabilities, the larger its weight. In a file
    `mine.py`, it is `teacher_weighting: mine:Margin`.

    >>> class Margin(TeacherWeighting):
    ...     def weights(self, teachers, context, memory):
    ...         first, second = teachers.probabilities.topk(2, dim=2).values.unbind(dim=2)
    ...         return torch.softmax(first - second, dim=0)
    >>> teachers = Teachers(torch.tensor([[[2.0, 0.0]], [[1.0, 1.0]]]).double(), temperature=4.0)
    >>> Margin(None).weights(teachers, None, {}).argmax(dim=0)
    tensor([0])
    """

    def weights(self, teachers: Teachers, context: RoundContext, memory: dict[str, Any]) -> Tensor:
        """The weights of the K models: w_k, [K], or w_k(x), [K, M]; they need not sum to one.

        It is called once per round, or once per block of rows where `refine_memory_mb` is set.

        Args:
            teachers: the models' logits and probabilities, [K, M, C], of all samples or of one block.
            context: what is known of the round.
            memory: kept between rounds.
        """
        raise NotImplementedError


class Uniform(TeacherWeighting):
    """w_k = 1: all models count the same (Eq. 4)."""

    def weights(self, teachers: Teachers, context: RoundContext, memory: dict[str, Any]) -> Tensor:
        """Ones, [K]."""
        return torch.ones(len(teachers.logits)).to(teachers.logits)


class Entropy(TeacherWeighting):
    """The paper's: w_k(x) = softmax over k of -e_k(x)."""

    def weights(self, teachers: Teachers, context: RoundContext, memory: dict[str, Any]) -> Tensor:
        """[K, M]."""
        return entropy_weights(entropy(teachers.probabilities))


class Familiarity(TeacherWeighting):
    """w_k(x) = softmax over k of s m max_c f_kc(x) / std(f_k) - (1 - m) e_k(x), m = min(1, relative loss / f).

    Large logits show that a model has seen such samples (docs/lab/choices.md has the measurements).
    """

    #: s, how strongly the size of the logits counts.
    strength = 4.0
    #: f, the relative loss below which entropy gradually replaces familiarity.
    fade = 0.5

    def weights(self, teachers: Teachers, context: RoundContext, memory: dict[str, Any]) -> Tensor:
        """[K, M]."""
        familiar = familiarity_share(context.relative_loss, self.fade)
        entropies = entropy(teachers.probabilities)
        return familiarity_weights(teachers.standardized_logits, entropies, self.strength, familiar)


TEACHER_WEIGHTINGS: dict[str, type[TeacherWeighting]] = {
    "uniform": Uniform,
    "entropy": Entropy,
    "familiarity": Familiarity,
}
