"""Stabilized teachers (Sect. 4.1): logits of different magnitude become probabilities that can be averaged.

Symbols: K models, M samples of the server, C classes; f_k the logits of model k, q_k its probabilities, tau the
temperature, sigma the softmax over classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor


class LogitScale(NamedTuple):
    """What each model's logits are divided by, [K, 1, 1] each: the largest magnitude, then the std of the quotient."""

    largest: Tensor
    deviation: Tensor


@dataclass(frozen=True)
class Teachers:
    """Predictions of K models for all of the server's samples, or for one block of consecutive samples.

    Attributes:
        logits: f_k, [K, M, C], doubles.
        temperature: tau of Eq. 6.
        scale: the scale of each model's logits over all samples; None where `logits` holds all samples.
    """

    logits: Tensor
    temperature: float
    scale: LogitScale | None = None

    @cached_property
    def probabilities(self) -> Tensor:
        """q_k of Eq. 6, [K, M, C]."""
        return normalized_probabilities(self.logits, self.temperature, self.scale)

    @cached_property
    def standardized_logits(self) -> Tensor:
        """f_k / std(f_k), [K, M, C]."""
        return standardize_logits(self.logits, self.scale)


def normalized_probabilities(logits: Tensor, temperature: float, scale: LogitScale | None = None) -> Tensor:
    """Eq. 6: q_k = sigma(tau * f_k / std(f_k)), one std for all samples and classes of a model.

    Args:
        logits: f_k, [..., M, C]; leading dimensions hold models.
        temperature: tau.
        scale: of all samples, where `logits` holds some of them.

    Returns:
        q_k, [..., M, C]. The std is the population's (correction 0). A model whose logits are all equal yields uniform
        rows.

    >>> normalized_probabilities(torch.tensor([[1.0, -1.0]]), temperature=0.5)
    tensor([[0.7311, 0.2689]])
    """
    return torch.softmax(temperature * standardize_logits(logits, scale), dim=-1)


def standardize_logits(logits: Tensor, scale: LogitScale | None = None) -> Tensor:
    """f_k / std(f_k), one std for all samples and classes of a model, [..., M, C]; 0 where all logits are equal."""
    largest = logits.abs().amax(dim=(-2, -1), keepdim=True) if scale is None else scale.largest
    # Dividing by the largest entry first keeps the squares inside std in range, whatever the logits' magnitude.
    scaled = logits / torch.where(largest > 0, largest, torch.ones_like(largest))
    deviation = scaled.std(dim=(-2, -1), correction=0, keepdim=True) if scale is None else scale.deviation
    constant = deviation <= torch.finfo(logits.dtype).eps
    return torch.where(constant, torch.zeros_like(scaled), scaled / deviation.masked_fill(constant, 1.0))


def logit_scale(models: Iterable[Tensor]) -> LogitScale:
    """The scale of each model's logits, given one model at a time, [1, M, C]."""
    scales = []
    for logits in models:
        largest = logits.abs().amax(dim=(-2, -1), keepdim=True)
        scaled = logits / torch.where(largest > 0, largest, torch.ones_like(largest))
        # Expanded to two models: PyTorch sums a single one in another order, and the last bit would differ.
        deviation = scaled.expand(2, -1, -1).std(dim=(-2, -1), correction=0, keepdim=True)[:1]
        scales.append((largest, deviation))
    return LogitScale(*(torch.cat(parts) for parts in zip(*scales, strict=True)))


def teacher_blocks(logits: Tensor, temperature: float, rows: int = 0) -> Iterator[Teachers]:
    """The models' predictions in blocks of so many rows, so that little is held as doubles at once; 0: in one block.

    The blocks' probabilities equal those of all rows at once, to the bit.

    Args:
        logits: f_k, [K, M, C], of any floating type.
        temperature: tau.
        rows: samples per block; the last block may have fewer.
    """
    if not 0 < rows < logits.shape[1]:
        yield Teachers(logits.double(), temperature)
        return
    scale = logit_scale(model.double() for model in logits.split(1))
    for block in logits.split(rows, dim=1):
        yield Teachers(block.double(), temperature, scale)


def predicted_classes(logits: Tensor) -> Tensor:
    """argmax_c f_kc(x), [K, M] on the CPU; one byte each where C allows.

    Args:
        logits: f_k, [K, M, C].
    """
    return logits.argmax(dim=2).to("cpu", torch.uint8 if logits.shape[2] <= 256 else torch.int32)


def disagreement(predicted: Tensor) -> float:
    """D: the fraction of pairs of models that predict different classes, over all samples, in [0, 1].

    D = 1 - 2 / (K (K - 1) M) * sum over x and over j < k of [argmax_c f_jc(x) = argmax_c f_kc(x)]

    It is a count, pair by pair: the same on every machine, and it needs no memory but the predicted classes.

    Args:
        predicted: the class that each model predicts for each sample, [K, M].

    Returns:
        D; 1 for a single model.

    >>> disagreement(torch.tensor([[0, 1, 2, 3], [0, 1, 2, 0], [0, 1, 0, 1]]))
    0.4166666666666667
    """
    models, samples = predicted.shape
    pairs = list(combinations(range(models), 2))
    if not pairs:
        return 1.0
    differing = sum(int((predicted[one] != predicted[other]).sum()) for one, other in pairs)
    return differing / (len(pairs) * samples)


def scale_by_disagreement(strength: float, disagreement: float, fade: float) -> float:
    """S * min(1, D / fade): the strength of a correction for clients that do not participate; beyond the paper.

    Where the models of the participating clients agree, the others would agree with them: a class that is rarely
    predicted is rare on the server, and targets of earlier rounds are only older.

    Args:
        strength: s.
        disagreement: D, in [0, 1].
        fade: the disagreement from which on s is applied in full; with 0 it always is.

    >>> scale_by_disagreement(0.8, 0.25, fade=0.5), scale_by_disagreement(0.8, 0.75, fade=0.5)
    (0.4, 0.8)
    >>> scale_by_disagreement(0.8, 0.25, fade=0.0)
    0.8
    """
    return strength if fade == 0.0 else strength * min(1.0, disagreement / fade)
