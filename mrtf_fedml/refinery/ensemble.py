"""Rectified distillation (Sect. 4.2): teachers are weighted per sample, and the global models teach too.

Symbols: K local models, M samples of the server, C classes; f_k and q_k the logits and probabilities of model k,
w_k(x) its weight on sample x, e_k(x) its entropy on x, u_t the weight of the local models against the global ones,
theta_t and theta_{t+1} the round's initial and aggregated models.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .teachers import Teachers

#: The smallest u_t: what Eq. 10 leaves to the local models when their loss is zero.
LEAST_LOCAL_WEIGHT = 0.25


def combine_teachers(teachers: Teachers, weights: Tensor, average: str = "avg_prob") -> Tensor:
    """The local models' ensemble: AvgProb (Eq. 7) or AvgLogi (Eq. 3), with weights per model or per model and sample.

    Args:
        teachers: f_k and q_k, [K, M, C].
        weights: w_k, [K], or w_k(x), [K, M].
        average: `avg_prob` or `avg_logit`.

    Returns:
        the ensemble, [M, C].
    """
    if average == "avg_logit":
        return average_logits(teachers.logits, weights)
    return average_probabilities(teachers.probabilities, weights)


def average_probabilities(probabilities: Tensor, weights: Tensor) -> Tensor:
    """Eq. 4 and 7, AvgProb: q_AP = sum_k w_k q_k.

    Args:
        probabilities: q_k, [K, M, C].
        weights: w_k, [K], or w_k(x), [K, M]; divided here by their sum over the models.

    Returns:
        q_AP, [M, C].

    >>> q = torch.tensor([[[0.5, 0.5, 0.0, 0.0]], [[0.5, 0.0, 0.5, 0.0]]])  # the paper's S = {1, 2}
    >>> average_probabilities(q, torch.ones(2))
    tensor([[0.5000, 0.2500, 0.2500, 0.0000]])
    """
    return _weighted_sum(probabilities, weights)


def average_logits(logits: Tensor, weights: Tensor) -> Tensor:
    """Eq. 3, AvgLogi (FedDF's teacher): q_AL = sigma(sum_k w_k f_k), without std and temperature.

    Args:
        logits: f_k, [K, M, C].
        weights: w_k, [K], or w_k(x), [K, M]; divided here by their sum over the models.

    Returns:
        q_AL, [M, C].
    """
    return torch.softmax(_weighted_sum(logits, weights), dim=-1)


def _weighted_sum(values: Tensor, weights: Tensor) -> Tensor:
    weights = weights.to(values.dtype)
    shares = weights / weights.sum(dim=0, keepdim=True)
    if shares.dim() == 1:
        return torch.einsum("k,kmc->mc", shares, values)
    return torch.einsum("km,kmc->mc", shares, values)


def entropy(probabilities: Tensor) -> Tensor:
    """e_k(x) = -sum_c q_k(c|x) log q_k(c|x), natural logarithm, 0 log 0 = 0.

    Args:
        probabilities: q_k, [..., C].

    Returns:
        e_k(x), [...].
    """
    return torch.special.entr(probabilities).sum(dim=-1)


def entropy_weights(entropies: Tensor) -> Tensor:
    """w_k(x) = softmax over the local models of -e_k(x): the lower a model's entropy, the larger its weight.

    Args:
        entropies: e_k(x), [K, M].

    Returns:
        w_k(x), [K, M]; columns sum to one.
    """
    return torch.softmax(-entropies, dim=0)


def familiarity_weights(standardized: Tensor, entropies: Tensor, strength: float, familiar: float) -> Tensor:
    """w_k(x) = softmax over the local models of s m max_c f_kc(x) / std(f_k) - (1 - m) e_k(x); beyond the paper.

    A model that has seen such samples has large logits on them; one that has not may still have a low entropy. In early
    rounds the weight therefore follows the size of the logits; entropy takes over as the models learn.

    Args:
        standardized: f_k / std(f_k), [K, M, C].
        entropies: e_k(x), [K, M].
        strength: s, at least 0.
        familiar: m, in [0, 1]; 0 gives `entropy_weights`.

    Returns:
        w_k(x), [K, M]; columns sum to one.
    """
    sizes = standardized.amax(dim=-1)
    return torch.softmax(strength * familiar * sizes - (1.0 - familiar) * entropies, dim=0)


def familiarity_share(relative_loss: float, fade: float) -> float:
    """The share of familiarity against entropy: m = min(1, (mean local loss / log C) / fade).

    >>> familiarity_share(0.25, fade=0.5), familiarity_share(0.9, fade=0.5), familiarity_share(0.1, fade=0.0)
    (0.5, 1.0, 1.0)
    """
    return 1.0 if fade == 0.0 else min(1.0, relative_loss / fade)


def relative_loss(train_loss: float, classes: int) -> float:
    """The mean local loss divided by log C, the loss of uniform predictions; clamped to [0, 1].

    >>> relative_loss(math.log(10) / 2, classes=10)
    0.5
    """
    if not math.isfinite(train_loss):
        raise ValueError(f"the mean local loss is {train_loss}, not a finite number")
    if classes < 2:
        return 0.0
    return min(1.0, max(0.0, train_loss / math.log(classes)))


def local_weight(train_loss: float, classes: int) -> float:
    """u_t = 0.25 + 0.75 * (mean local loss) / log C, clamped to [0.25, 1].

    >>> local_weight(0.0, classes=10), local_weight(99.0, classes=10)
    (0.25, 1.0)
    """
    return LEAST_LOCAL_WEIGHT + (1.0 - LEAST_LOCAL_WEIGHT) * relative_loss(train_loss, classes)


def add_self_teaching(local: Tensor, global_probabilities: Tensor, local_weight: float) -> Tensor:
    """Eq. 10: q_RAP = u_t * q_local + (1 - u_t) / 2 * (q_g(theta_t) + q_g(theta_{t+1})).

    Args:
        local: the local models' weighted ensemble, [M, C].
        global_probabilities: q_g of the initial and of the aggregated model, [2, M, C].
        local_weight: u_t.

    Returns:
        q_RAP, [M, C].
    """
    return local_weight * local + (1.0 - local_weight) / 2 * global_probabilities.sum(dim=0)
