"""Teachers that know different classes; beyond the paper, whose teachers all predict the same C classes.

Symbols: K teachers, M samples, C classes; K_k the classes that teacher k knows, q_k its probabilities on them, w_k(x)
its weight on sample x, p the ensemble.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .ensemble import entropy

#: Steps towards the fixed point. Each moves probability between two classes as far as the teachers that know both say.
_STEPS = 100
#: The smallest weight of a teacher that contradicts the others: a class that it alone knows keeps a vote.
_LEAST_RELIABILITY = 0.01
#: Steps of the reliabilities, which depend on each other.
_RELIABILITY_STEPS = 10


def combine_by_known_classes(probabilities: Tensor, known: Tensor, weights: Tensor) -> Tensor:
    """The ensemble in which a teacher has no vote on classes that it does not know.

    p(c|x) = 1 / (sum_k w_k) sum_k w_k (q_k(c|x) p(K_k|x) if c is in K_k, else p(c|x)): a teacher divides the
    probability of the classes that it knows, and agrees with the ensemble on the others. It is Eq. 7 where all know all
    classes.

    Args:
        probabilities: q_k, [K, M, C]; 0 where a teacher does not know the class.
        known: whether teacher k knows class c, [K, C]; each class is known by one teacher at least.
        weights: w_k(x), [K, M], positive.

    Returns:
        p, [M, C], after 100 steps from the mean over the teachers that know the class.

    >>> q = torch.tensor([[[0.9, 0.1, 0.0]], [[0.0, 0.5, 0.5]]])
    >>> known = torch.tensor([[True, True, False], [False, True, True]])
    >>> combine_by_known_classes(q, known, torch.ones(2, 1))
    tensor([[0.8182, 0.0909, 0.0909]])
    """
    mask = known.to(probabilities)
    total = weights.sum(dim=0).unsqueeze(1)
    votes = torch.einsum("km,kc->mc", weights, mask)
    ensemble = torch.einsum("km,kmc->mc", weights, probabilities) / votes
    ensemble = ensemble / ensemble.sum(dim=1, keepdim=True)
    if bool(known.all()):
        return ensemble
    for _ in range(_STEPS):
        shares = weights * torch.einsum("mc,kc->km", ensemble, mask)
        ensemble = (torch.einsum("km,kmc->mc", shares, probabilities) + (total - votes) * ensemble) / total
    return ensemble / ensemble.sum(dim=1, keepdim=True)


def relative_entropy_weights(probabilities: Tensor, known: Tensor) -> Tensor:
    """w_k(x) = softmax over k of -e_k(x) log C / log |K_k|: the entropy relative to that of the teacher's own classes.

    Args:
        probabilities: q_k, [K, M, C]; 0 where a teacher does not know the class.
        known: whether teacher k knows class c, [K, C].

    Returns:
        w_k(x), [K, M]; columns sum to one.
    """
    own = known.sum(dim=1).to(probabilities).clamp_min(2).log()
    scale = math.log(max(known.shape[1], 2)) / own
    return torch.softmax(-entropy(probabilities) * scale.unsqueeze(1), dim=0)


def pairwise_agreement(predicted: Tensor, known: Tensor) -> Tensor:
    """Cohen's kappa of each two teachers, on the samples where both predict a class that both know.

    Args:
        predicted: the class that each teacher predicts, [K, M].
        known: whether teacher k knows class c, [K, C].

    Returns:
        kappa, [K, K], doubles: 1 if they agree, 0 if they agree as often as by chance; NaN where it is not defined.

    >>> pairwise_agreement(torch.tensor([[0, 0, 1, 1], [0, 0, 1, 0]]), torch.ones(2, 2, dtype=torch.bool))[0, 1]
    tensor(0.5000, dtype=torch.float64)
    """
    teachers, classes = known.shape
    kappa = torch.full((teachers, teachers), math.nan, dtype=torch.float64)
    for one in range(teachers):
        for other in range(one):
            common = known[one] & known[other]
            both = common[predicted[one].long()] & common[predicted[other].long()]
            left, right = predicted[one][both].long(), predicted[other][both].long()
            if len(left) == 0:
                continue
            frequencies = [torch.bincount(labels, minlength=classes).double() / len(left) for labels in (left, right)]
            chance = float((frequencies[0] * frequencies[1]).sum())
            if chance < 1:
                agreement = float((left == right).double().mean())
                kappa[one, other] = kappa[other, one] = (agreement - chance) / (1 - chance)
    return kappa


def reliability(kappa: Tensor) -> Tensor:
    """r_k = min(1, a_k / median_j a_j)^2, a_k the mean of max(0, kappa_jk) over the others, weighted by their r_j.

    A teacher that contradicts those which agree with each other gets little weight. Of two teachers it cannot be known
    which is wrong: both have 1, as has a teacher that cannot be compared.

    Args:
        kappa: of `pairwise_agreement`, [K, K].

    Returns:
        r_k, [K], in [0.01, 1], doubles.

    >>> reliability(torch.tensor([[math.nan, 0.9, 0.0], [0.9, math.nan, 0.1], [0.0, 0.1, math.nan]]).double())
    tensor([1.0000, 1.0000, 0.0100], dtype=torch.float64)
    """
    defined = ~kappa.isnan()
    values = kappa.double().nan_to_num(0.0).clamp_min(0.0)
    weights = torch.ones(len(kappa), dtype=torch.float64)
    comparable = defined.any(dim=1)
    for _ in range(_RELIABILITY_STEPS):
        agreement = (values @ weights) / (defined.double() @ weights).clamp_min(1e-12)
        median = float(agreement[comparable].median()) if bool(comparable.any()) else 0.0
        if median <= 0:
            return torch.ones_like(weights)
        ratio = (agreement / median).clamp(max=1.0) ** 2
        weights = torch.where(comparable, ratio.clamp_min(_LEAST_RELIABILITY), torch.ones_like(ratio))
    return weights
