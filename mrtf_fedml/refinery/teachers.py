"""Stabilised teachers (Sect. 4.1): logits of unequal size become probabilities that may be averaged.

Symbols: K local models, M samples of the server, C classes; f_k the logits, w_k a model's weight, tau the
temperature, sigma the softmax over classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

#: What keeps a batch of equal logits from a division by zero: they then yield uniform rows.
_SMALLEST_STD = 1e-8


class Scale(NamedTuple):
    """What a model's logits are divided by, [..., 1, 1] each: the largest, then the std of what that leaves."""

    largest: Tensor
    deviation: Tensor


def normalised_probabilities(logits: Tensor, temperature: float, scale: Scale | None = None) -> Tensor:
    """Eq. 6: q_k = sigma(tau * f_k / std(f_k)), one std for all samples and classes of a model.

    Args:
        logits: f_k, [..., M, C]; leading dimensions hold models.
        temperature: tau.
        scale: of all the model's logits, where these are some rows of them.

    Returns:
        q_k, [..., M, C]. The std is the population's (correction 0). A model whose logits are all equal knows
        nothing and yields uniform rows.

    >>> normalised_probabilities(torch.tensor([[1.0, -1.0]]), temperature=0.5)
    tensor([[0.7311, 0.2689]])
    """
    return torch.softmax(temperature * standardised(logits, scale), dim=-1)


def standardised(logits: Tensor, scale: Scale | None = None) -> Tensor:
    """f_k / std(f_k), one std for all samples and classes of a model, [..., M, C]; 0 where all logits are equal."""
    largest = logits.abs().amax(dim=(-2, -1), keepdim=True) if scale is None else scale.largest
    # Dividing by the largest entry first keeps the squares inside std in range, whatever the logits' size.
    scaled = logits / torch.where(largest > 0, largest, torch.ones_like(largest))
    deviation = scaled.std(dim=(-2, -1), correction=0, keepdim=True) if scale is None else scale.deviation
    constant = deviation <= torch.finfo(logits.dtype).eps
    return torch.where(constant, torch.zeros_like(scaled), scaled / deviation.masked_fill(constant, 1.0))


def scale_of(models: Iterable[Tensor]) -> Scale:
    """The scale of each model's logits [1, M, C], which are taken one after another; for `standardised` parts."""
    scales = []
    for logits in models:
        largest = logits.abs().amax(dim=(-2, -1), keepdim=True)
        scaled = logits / torch.where(largest > 0, largest, torch.ones_like(largest))
        # As of two models: PyTorch adds up a single one in another order, and the last bit would differ.
        deviation = scaled.expand(2, -1, -1).std(dim=(-2, -1), correction=0, keepdim=True)[:1]
        scales.append((largest, deviation))
    return Scale(*(torch.cat(parts) for parts in zip(*scales, strict=True)))


def batch_normalised_probabilities(logits: Tensor, temperature: float, rows: int, scale: Scale | None = None) -> Tensor:
    """Eq. 6 as in the authors' program: one std for each batch of samples, which are taken in their order.

    Args:
        logits: f_k, [..., M, C].
        temperature: tau.
        rows: samples per batch; 0 takes all at once, as Eq. 6 does. The last batch may be smaller.
        scale: as in `normalised_probabilities`.

    Returns:
        q_k, [..., M, C]. In a batch the std is the sample's (correction 1).
    """
    if rows == 0:
        return normalised_probabilities(logits, temperature, scale)
    parts = [part / (part.std(dim=(-2, -1), keepdim=True) + _SMALLEST_STD) for part in logits.split(rows, dim=-2)]
    return torch.softmax(temperature * torch.cat(parts, dim=-2), dim=-1)


def average_probabilities(probabilities: Tensor, weights: Tensor, trim: float = 0.0) -> Tensor:
    """Eq. 4 and 7, AvgProb: q_AP = sum_k w_k q_k.

    Args:
        probabilities: q_k, [K, M, C].
        weights: w_k, [K], or w_k(x), [K, M]; divided here by their sum over the models.
        trim: against models that lie, the share of the weight left out at either end, as in `trimmed_mean`; rows are
            normalised again. 0 is Eq. 4.

    Returns:
        q_AP, [M, C].

    >>> q = torch.tensor([[[0.5, 0.5, 0.0, 0.0]], [[0.5, 0.0, 0.5, 0.0]]])  # the paper's S = {1, 2}
    >>> average_probabilities(q, torch.ones(2))
    tensor([[0.5000, 0.2500, 0.2500, 0.0000]])
    """
    if trim == 0.0:
        return _weighted_sum(probabilities, weights)
    kept = trimmed_mean(probabilities, weights, trim)
    mass = kept.sum(dim=1, keepdim=True)
    # Where no class is named by enough models, nothing is known.
    return torch.where(mass > 0, kept / mass.masked_fill(mass <= 0, 1.0), torch.full_like(kept, 1 / kept.shape[1]))


def average_logits(logits: Tensor, weights: Tensor, trim: float = 0.0) -> Tensor:
    """Eq. 3, AvgLogi (FedDF's teacher): q_AL = sigma(sum_k w_k f_k), without std and temperature.

    Args:
        logits: f_k, [K, M, C].
        weights: w_k, [K], or w_k(x), [K, M]; divided here by their sum over the models.
        trim: the share of the weight left out at either end, as in `trimmed_mean`; 0 is Eq. 3.

    Returns:
        q_AL, [M, C].
    """
    mean = _weighted_sum(logits, weights) if trim == 0.0 else trimmed_mean(logits, weights, trim)
    return torch.softmax(mean, dim=-1)


def trimmed_mean(values: Tensor, weights: Tensor, trim: float) -> Tensor:
    """The weighted mean of the models' values without the lowest and the highest, for each sample and class.

    The values are laid out in order, each as long as its weight, on a line of length one; the mean is taken from `trim`
    to 1 - `trim`.

    Args:
        values: of K models, [K, M, C].
        weights: w_k, [K], or w_k(x), [K, M].
        trim: in [0, 1/2]; 1/2 is the weighted median.

    Returns:
        [M, C].

    >>> values = torch.tensor([0.0, 1.0, 2.0, 90.0]).reshape(4, 1, 1)
    >>> [trimmed_mean(values, torch.ones(4), trim).item() for trim in (0.0, 0.25, 0.5)]
    [23.25, 1.5, 1.5]
    """
    # At one half nothing would be left to average: the middle is a very short piece.
    trim = min(trim, 0.5 - 1e-6)
    shares = weights.to(values.dtype) / weights.to(values.dtype).sum(dim=0, keepdim=True)
    ordered, order = values.sort(dim=0)
    lengths = shares.reshape(len(values), -1, 1).expand_as(values).gather(0, order)
    ends = lengths.cumsum(dim=0)
    inside = (ends.clamp_max(1 - trim) - (ends - lengths).clamp_min(trim)).clamp_min(0)
    return (inside * ordered).sum(dim=0) / inside.sum(dim=0)


def _weighted_sum(values: Tensor, weights: Tensor) -> Tensor:
    weights = weights.to(values.dtype)
    shares = weights / weights.sum(dim=0, keepdim=True)
    if shares.dim() == 1:
        return torch.einsum("k,kmc->mc", shares, values)
    return torch.einsum("km,kmc->mc", shares, values)


def votes_of(logits: Tensor) -> Tensor:
    """The class that each model names for each sample, [K, M] on the CPU; a byte each where C allows.

    Args:
        logits: f_k, [K, M, C].
    """
    return logits.argmax(dim=2).to("cpu", torch.uint8 if logits.shape[2] <= 256 else torch.int32)


def disagreement(votes: Tensor) -> float:
    """D = the share of pairs of local models that name different classes, over all samples, in [0, 1].

    D = 1 - 2 / (K (K - 1) M) * sum over x and over j < k of [argmax_c f_jc(x) = argmax_c f_kc(x)]

    It is a count, pair by pair: the same on every machine, and it takes no memory beside the votes.

    Args:
        votes: the class that each model names for each sample, [K, M].

    Returns:
        D. A model alone has nobody to agree with: 1.

    >>> disagreement(torch.tensor([[0, 1, 2, 3], [0, 1, 2, 0], [0, 1, 0, 1]]))
    0.4166666666666667
    """
    models, samples = votes.shape
    pairs = list(combinations(range(models), 2))
    if not pairs:
        return 1.0
    differing = sum(int((votes[one] != votes[other]).sum()) for one, other in pairs)
    return differing / (len(pairs) * samples)
