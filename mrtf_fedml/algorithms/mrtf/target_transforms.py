"""Corrections of the distillation targets, beyond the paper.

Three are switched on by keys of their own: `class_balance`, `target_smoothing` and `target_sharpness`. Others are named
in `target_transforms`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...config import MrTFSettings
from ...refinery.class_prior import (
    PRIOR_RATE,
    balance_classes,
    floor_prior,
    mutual_information,
    predicted_class_frequencies,
    prediction_dependence,
    single_class_score,
    update_prior,
)
from ...refinery.targets import sharpen_targets, smooth_targets
from ...refinery.teachers import scale_by_disagreement
from .components import Component, RoundContext, build_component


class TargetTransform(Component):
    """A change of the targets in one of three places; a transform overrides what it needs.

    A complete one: mix the targets with the uniform distribution, less from round to round. In a file `mine.py`, it is
    `target_transforms: ["mine:Soften"]`.

    >>> class Soften(TargetTransform):
    ...     def on_targets(self, targets, context, memory):
    ...         memory["share"] = memory.get("share", 0.4) / 2
    ...         return (1 - memory["share"]) * targets + memory["share"] / targets.shape[1]
    >>> import torch
    >>> memory = {}
    >>> Soften(None).on_targets(torch.tensor([[1.0, 0.0]]), None, memory), memory
    (tensor([[0.9000, 0.1000]]), {'share': 0.2})
    """

    def on_ensemble(self, ensemble: Tensor, context: RoundContext, memory: dict[str, Any]) -> Tensor:
        """The ensemble after Eq. 10 and before clustering, [M, C], doubles."""
        return ensemble

    def on_targets(self, targets: Tensor, context: RoundContext, memory: dict[str, Any]) -> Tensor:
        """The targets after clustering, [M, C]."""
        return targets

    def on_student_targets(self, targets: Tensor, context: RoundContext, memory: dict[str, Any]) -> Tensor:
        """The targets that the student follows, [M, C]; scores and model selection use those before it."""
        return targets


class ClassPriorBalance(TargetTransform):
    """q'(c|x) proportional to q(c|x) (pi_c / m_c)^b, m_c = E[q(c|x)], b = class_balance * min(1, D / 0.5).

    pi is equal (`class_prior: equal`), or an average over the rounds of how often each class is predicted
    (`estimated`): pi' = (1 - r) pi + r * frequencies, r = 0.2 (1 - relative loss). Where the samples look like one
    class, pi moves to the round's own frequencies first.

    Memory: `prior`, pi, [C].
    """

    #: The disagreement D below which less is balanced: where the local models agree, a class that they rarely predict
    #: is rare, and not only among the selected clients.
    fade = 0.5
    #: The dependence of the local models' predictions below which the samples may be of one class.
    single_class_fade = 0.25

    def on_ensemble(self, ensemble: Tensor, context: RoundContext, memory: dict[str, Any]) -> Tensor:
        """Balance, and update the prior."""
        strength = scale_by_disagreement(self.settings.class_balance, context.disagreement, self.fade)
        if self.settings.class_prior == "equal":
            return balance_classes(ensemble, strength)
        prior: Tensor | None = memory.get("prior")
        classes = ensemble.shape[1]
        single = self._single_class_score(ensemble, context)
        wanted = prior if single == 0.0 else update_prior(prior, ensemble, single)
        balanced = balance_classes(ensemble, strength, floor_prior(wanted, classes).to(ensemble))
        memory["prior"] = update_prior(prior, balanced, PRIOR_RATE * (1.0 - context.relative_loss)).cpu()
        return balanced

    def _single_class_score(self, ensemble: Tensor, context: RoundContext) -> float:
        dependence = prediction_dependence(context.predictions.predicted)
        if dependence >= self.single_class_fade:
            return 0.0
        information = mutual_information(teachers.probabilities for teachers in context.local_teachers())
        largest = float(predicted_class_frequencies(ensemble).max())
        return single_class_score(dependence, information, largest, self.single_class_fade)


class TemporalSmoothing(TargetTransform):
    """q_t = (1 - w) q + w q_(t-1), w = target_smoothing * min(1, D / 0.75) * (1 - relative loss).

    Memory: `targets`, q_t, [M, C].
    """

    #: The disagreement D below which less is kept: where the local models agree, those of other clients would too, and
    #: old targets are only older.
    fade = 0.75

    def on_targets(self, targets: Tensor, context: RoundContext, memory: dict[str, Any]) -> Tensor:
        """Mix with the last round's."""
        strength = scale_by_disagreement(self.settings.target_smoothing, context.disagreement, self.fade)
        memory["targets"] = smooth_targets(targets, memory.get("targets"), context.train_loss, strength)
        return memory["targets"]


class Sharpening(TargetTransform):
    """q'(c|x) proportional to q(c|x)^p, p = 1 + (target_sharpness - 1) (1 - relative loss)."""

    def on_student_targets(self, targets: Tensor, context: RoundContext, memory: dict[str, Any]) -> Tensor:
        """Raise to the power."""
        return sharpen_targets(targets, context.train_loss, self.settings.target_sharpness)


def build_transforms(settings: MrTFSettings) -> dict[str, TargetTransform]:
    """The transforms that are switched on, in the order in which they apply, by the name of their memory."""
    transforms: dict[str, TargetTransform] = {}
    if settings.class_balance > 0:
        transforms["class_prior_balance"] = ClassPriorBalance(settings)
    if settings.target_smoothing > 0:
        transforms["temporal_smoothing"] = TemporalSmoothing(settings)
    if settings.target_sharpness > 1:
        transforms["sharpening"] = Sharpening(settings)
    for name in settings.target_transforms:
        transforms[name] = build_component(name, "target_transforms", TargetTransform, {}, settings)
    return transforms
