"""The distillation targets of a round, composed from the three modules by their switches (Sect. 4.1-4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..settings import MrTFSettings
from .clusters import reassigned_probabilities
from .memory import StoredLogits
from .parts import Models, in_parts
from .rectify import (
    class_balanced,
    confidence_weights,
    entropy,
    faded,
    familiarity_share,
    familiarity_weights,
    jointly_confident,
    local_weight,
    relative_loss,
    self_taught,
)
from .shares import floored_shares, information, named_shares, one_kind, one_kinds_shares, renewed_shares
from .stored_rows import StoredRows
from .teachers import average_logits, average_probabilities


@dataclass(frozen=True)
class DistillationTargets:
    """What the student is to follow, and how it came about.

    Attributes:
        probabilities: the targets, [M, C].
        ensemble: the targets before clustering (Eq. 10), [M, C].
        local_weight: u_t; 1 where the global models did not teach.
        shares: pi, what the server's classes are thought to be after this round, [C]; None where it is not estimated.
    """

    probabilities: Tensor
    ensemble: Tensor
    local_weight: float
    shares: Tensor | None = None


def distillation_targets(
    local_logits: Tensor | StoredLogits,
    global_logits: Tensor | None,
    features: Tensor | StoredRows | None,
    local_loss: float,
    settings: MrTFSettings | Mapping[str, Any],
    std_rows: int = 0,
    shares: Tensor | None = None,
    rows: int = 0,
    unlike: float = 1.0,
    tied: float = 1.0,
) -> DistillationTargets:
    """Steps (2)-(4) of Sect. 4.4: predictions, rectified, re-assigned by clusters.

    Args:
        local_logits: f_k of the local models, [K, M, C].
        global_logits: f_g of the round's initial and aggregated models, [2, M, C], or None.
        features: h(x) of the aggregated model, [M, D], or None, which leaves clustering out (warm-up).
        local_loss: mean over the clients of their local cross-entropy.
        settings: the switches, as `MrTFSettings` or as the YAML's `mrtf_args`.
        std_rows: samples that share the std of Eq. 6 (`std_batches` of the clients' batches); 0 means all.
        shares: pi as the rounds before have estimated it, [C]; None in the first.
        rows: samples whose targets are made at once, a multiple of `std_rows`: a matter of memory alone. 0 means all.
        unlike: D, in [0, 1], the local models' `disagreement`, by which balance may fade.
        tied: T, the `tie` of the local models' votes, by which shares may be the round's own.

    Returns:
        The targets, in the dtype of `local_logits`. Inside, doubles are used: it costs little beside the models'
        passes, and averages over many samples keep their digits.
    """
    settings = MrTFSettings.from_mapping(settings)
    _check(local_logits, global_logits, features)
    taught = global_logits if settings.self_teaching else None
    weight = 1.0 if taught is None else local_weight(local_loss, local_logits.shape[-1])

    ensemble = torch.cat(
        [
            _rectified(local, of_globals, weight, local_loss, settings, std_rows)
            for local, of_globals in in_parts(local_logits, taught, rows)
        ]
    )
    alone = 0.0
    if settings.class_shares == "estimated" and tied < settings.shares_fade:
        told = (local.probabilities(settings, std_rows) for local, _ in in_parts(local_logits, None, rows))
        most = float(named_shares(ensemble).max())
        alone = one_kind(tied, information(told), most, settings.shares_fade)
    ensemble, shares = _balanced(ensemble, shares, local_loss, settings, unlike, alone)

    probabilities = ensemble
    if settings.cluster_refinery and features is not None:
        probabilities = reassigned_probabilities(
            ensemble,
            features,
            settings.cluster_temperature,
            settings.cluster_steps,
            settings.cluster_distance,
        )
    if settings.global_confidence:
        # Until here a row's sum was the sample's say in the prototypes.
        ensemble = ensemble / ensemble.sum(dim=1, keepdim=True)
        probabilities = probabilities / probabilities.sum(dim=1, keepdim=True)
    dtype = local_logits.dtype
    return DistillationTargets(probabilities.to(dtype), ensemble.to(dtype), weight, shares)


def smoothed_targets(targets: Tensor, previous: Tensor | None, local_loss: float, target_smoothing: float) -> Tensor:
    """targets_t = (1 - w) targets + w targets_(t-1), w = s * (1 - min(1, mean local loss / log C)).

    The better the clients have learnt, the more the last round's targets are worth keeping.

    Args:
        targets: this round's, [M, C].
        previous: the last round's smoothed targets, [M, C]; None in the first round, which keeps nothing.
        local_loss: mean over the clients of their local cross-entropy.
        target_smoothing: s, in [0, 1]; 0 keeps nothing.

    Returns:
        targets_t, [M, C].
    """
    if previous is None or target_smoothing == 0.0:
        return targets
    kept = target_smoothing * (1.0 - relative_loss(local_loss, targets.shape[-1]))
    return (1.0 - kept) * targets + kept * previous.to(targets)


def sharpened_targets(targets: Tensor, local_loss: float, target_sharpness: float) -> Tensor:
    """q'(c|x) = q(c|x)^p / sum_d q(d|x)^p, p = 1 + (s - 1) * (1 - min(1, mean local loss / log C)).

    An average of many teachers is softer than any of them, and a student that follows it starts the next round unsure
    of what it knew. But teachers who know little are wrong where they are sure: p stays near 1 until they have learnt.

    Args:
        targets: q, [M, C].
        local_loss: mean over the clients of their local cross-entropy.
        target_sharpness: s, at least 1, which changes nothing.

    Returns:
        q', [M, C].
    """
    if target_sharpness == 1.0:
        return targets
    power = 1.0 + (target_sharpness - 1.0) * (1.0 - relative_loss(local_loss, targets.shape[-1]))
    # By the largest entry first: a power of small numbers alone would leave the range of floats.
    powers = (targets / targets.amax(dim=1, keepdim=True)) ** power
    return powers / powers.sum(dim=1, keepdim=True)


def _rectified(
    local: Models, taught: Models | None, weight: float, local_loss: float, settings: MrTFSettings, std_rows: int
) -> Tensor:
    """Eq. 10, [M, C], of all rows or some: what one row gets depends on no other, but for the scale."""
    ensemble = _local_ensemble(local, local_loss, settings, std_rows)
    if taught is None:
        return ensemble
    of_globals = taught.probabilities(settings, std_rows)
    if settings.global_confidence and settings.teacher == "avg_prob" and settings.teacher_weights == "entropy":
        of_local = local.probabilities(settings, std_rows)
        entropies = _entropies(torch.cat([of_local, of_globals]), settings)
        return jointly_confident(of_local, of_globals, entropies, weight)
    return self_taught(ensemble, of_globals, weight)


def _local_ensemble(local: Models, local_loss: float, settings: MrTFSettings, std_rows: int) -> Tensor:
    """The local models' part of Eq. 10 (AvgProb), or Eq. 3 (AvgLogi), [M, C]."""
    logits = local.logits
    trim = {"mean": 0.0, "median": 0.5, "trimmed": settings.teacher_trim}[settings.teacher_average]
    # Whoever lies may be as sure of it as he likes: against him all models count the same.
    alike = settings.teacher_weights == "uniform" or trim > 0
    if settings.teacher == "avg_logit" and alike:
        return average_logits(logits, torch.ones(len(logits)).to(logits), trim)
    probabilities = local.probabilities(settings, std_rows)
    if alike:
        return average_probabilities(probabilities, torch.ones(len(logits)).to(logits), trim)
    weights = _teacher_weights(local, probabilities, local_loss, settings)
    if settings.teacher == "avg_prob":
        return average_probabilities(probabilities, weights)
    return average_logits(logits, weights)


def _teacher_weights(local: Models, probabilities: Tensor, local_loss: float, settings: MrTFSettings) -> Tensor:
    """w_k(x), [K, M]."""
    if settings.teacher_weights == "entropy":
        return confidence_weights(_entropies(probabilities, settings))
    familiar = familiarity_share(relative_loss(local_loss, probabilities.shape[-1]), settings.familiarity_fade)
    entropies = _entropies(probabilities, settings)
    return familiarity_weights(local.logits, entropies, settings.familiarity, familiar, local.scale)


def _balanced(
    ensemble: Tensor, shares: Tensor | None, local_loss: float, settings: MrTFSettings, unlike: float, alone: float
) -> tuple[Tensor, Tensor | None]:
    """The ensemble brought towards the classes' shares, and the shares after it."""
    balance = faded(settings.class_balance, unlike, settings.balance_fade)
    if settings.class_shares == "equal" or settings.class_balance == 0.0:
        return class_balanced(ensemble, balance), None
    classes = ensemble.shape[1]
    towards = shares if alone == 0.0 else one_kinds_shares(shares, ensemble, alone)
    balanced = class_balanced(ensemble, balance, floored_shares(towards, classes).to(ensemble))
    return balanced, renewed_shares(shares, balanced, learnt=1.0 - relative_loss(local_loss, classes))


def _entropies(probabilities: Tensor, settings: MrTFSettings) -> Tensor:
    """e_k(x), [..., M]; divided by C where the settings say so, as the authors' program does."""
    entropies = entropy(probabilities)
    return entropies / probabilities.shape[-1] if settings.entropy_per_class else entropies


def _check(
    local_logits: Tensor | StoredLogits, global_logits: Tensor | None, features: Tensor | StoredRows | None
) -> None:
    if local_logits.dim() != 3 or 0 in local_logits.shape:
        raise ValueError(f"local_logits must be [K, M, C], none of them 0, not {tuple(local_logits.shape)}")
    samples, classes = local_logits.shape[1:]
    if global_logits is not None and tuple(global_logits.shape) != (2, samples, classes):
        raise ValueError(
            f"global_logits must be [2, {samples}, {classes}] (initial, aggregated) to fit local_logits, "
            f"not {tuple(global_logits.shape)}"
        )
    if features is not None and (features.dim() != 2 or features.shape[0] != samples or features.shape[1] == 0):
        raise ValueError(f"features must be [{samples}, D] to fit local_logits, not {tuple(features.shape)}")
