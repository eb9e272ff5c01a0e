"""Class prior of the server's set: estimated from predictions, and used to balance the targets; beyond the paper.

Symbols: K local models, M samples of the server, C classes; pi_c the prior of class c, q(c|x) the ensemble, q_k(c|x)
the local models, P_jk(c, d) the fraction of samples for which models j and k predict c and d, p_k(c) that of model k
alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations

import torch
from torch import Tensor

from .ensemble import entropy

#: The smallest prior of a class, relative to an equal prior.
LEAST_PRIOR = 0.1
#: How fast the estimated prior follows the rounds.
PRIOR_RATE = 0.2
#: Below this fraction of the fade the predictions count as independent, and the prior is the round's own.
_INDEPENDENT = 0.6
#: Mutual information per sample, in nats, from which on a model counts as trained: before, it predicts one class.
_TRAINED = 0.2
#: Mutual information per sample, in nats, from which on targets count as fully informative.
_INFORMATIVE = 0.5
#: The fraction of samples predicted as one class below which it is not the only class, and above which it is.
_FEW, _MANY = 0.4, 0.6
#: Samples whose mutual information is computed at once, to bound memory.
_ROWS = 4096
#: Resolution to which the terms of a sum are rounded, so that the sum does not depend on their order.
_RESOLUTION = 2.0**32


def balance_classes(probabilities: Tensor, strength: float, prior: Tensor | None = None) -> Tensor:
    """q'(c|x) proportional to q(c|x) (pi_c / m_c)^b, m_c = E[q(c|x)].

    The clients of a round hold some classes more often than others, and so does their ensemble, whatever the server's
    samples are. Dividing by a power of the mass m_c removes what a class owes to the selection of clients alone, and
    pi_c is the mass it should have. No label is read: m_c is the ensemble's own.

    Args:
        probabilities: q, [M, C].
        strength: b, in [0, 1]; 0 changes nothing, and 1 gives every class its prior.
        prior: pi, [C]; None for an equal prior.

    Returns:
        q', [M, C]. A class without mass stays without.
    """
    if strength == 0.0:
        return probabilities
    mass = probabilities.mean(dim=0, keepdim=True)
    balanced = probabilities / mass.masked_fill(mass <= 0, 1.0) ** strength
    if prior is not None:
        balanced = balanced * prior.to(balanced) ** strength
    return balanced / balanced.sum(dim=1, keepdim=True)


def floor_prior(prior: Tensor | None, classes: int) -> Tensor:
    """The prior with every class at 0.1 / C or more, [C], doubles; an equal prior where none is known.

    >>> floor_prior(torch.tensor([1.0, 0.0]), classes=2)
    tensor([0.9524, 0.0476])
    """
    if prior is None:
        return torch.full((classes,), 1.0 / classes, dtype=torch.float64)
    # A class that was once never predicted may still occur: without a floor it could never come back.
    floored = prior.clamp_min(LEAST_PRIOR / classes)
    return floored / floored.sum()


def predicted_class_frequencies(probabilities: Tensor) -> Tensor:
    """The fraction of samples whose largest q(c|x) is c, [C], doubles.

    Predicted classes are counted, not their probabilities, which are too even to show that a class is missing.

    >>> predicted_class_frequencies(torch.tensor([[0.6, 0.4, 0.0], [0.5, 0.2, 0.3], [0.1, 0.8, 0.1], [0.9, 0.0, 0.1]]))
    tensor([0.7500, 0.2500, 0.0000], dtype=torch.float64)
    """
    counts = torch.bincount(probabilities.argmax(dim=1), minlength=probabilities.shape[1])
    return counts.double() / len(probabilities)


def update_prior(prior: Tensor | None, probabilities: Tensor, rate: float) -> Tensor:
    """pi_c' = (1 - r) pi_c + r * the fraction of samples whose largest q(c|x) is c.

    One round's ensemble reflects its clients; over the rounds the selection of clients averages out.

    Args:
        prior: pi, [C]; None for an equal prior.
        probabilities: q, [M, C].
        rate: r, in [0, 1].

    Returns:
        pi', [C], doubles.

    >>> update_prior(None, torch.tensor([[0.9, 0.1], [0.8, 0.2]]), rate=0.2)
    tensor([0.6000, 0.4000], dtype=torch.float64)
    """
    frequencies = predicted_class_frequencies(probabilities)
    before = torch.full_like(frequencies, 1.0 / len(frequencies)) if prior is None else prior.to(frequencies)
    return (1.0 - rate) * before + rate * frequencies


def prediction_dependence(predicted: Tensor) -> float:
    """T = sqrt(mean over j < k of max(0, |P_jk - p_j p_k|^2 - (1 - |P_jk|^2) / M) / (|p_j|^2 |p_k|^2)), 0 or more.

    If the server's samples are of several classes, each model predicts now one class and now another, and the
    predictions of two models depend on each other, even where they never agree: P_jk is far from the product p_j p_k.
    If all samples are of one class, only each model's own error is left, and the two are near. T is their distance
    relative to the size of the product, without what chance adds in M samples. n classes that all models know give
    sqrt(n - 1), one gives 0.

    It is computed from integers, pair by pair: the same on every machine.

    Args:
        predicted: the class that each model predicts for each sample, [K, M].

    Returns:
        T; 1 for a single model, with which nothing fades.

    >>> dependent = torch.tensor([[0, 1, 2, 3], [5, 5, 6, 6]])
    >>> independent = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1]])
    >>> round(prediction_dependence(dependent.repeat(1, 100)), 4), prediction_dependence(independent.repeat(1, 100))
    (0.9925, 0.0)
    """
    models, samples = predicted.shape
    pairs = list(combinations(range(models), 2))
    if not pairs:
        return 1.0
    labels = predicted.long()
    classes = int(labels.max()) + 1
    counts = [torch.bincount(one, minlength=classes) for one in labels]
    sizes = [int((one * one).sum()) / samples**2 for one in counts]
    total = 0.0
    for first, second in pairs:
        # Of C * C pairs of classes only those that occur.
        both, times = torch.unique(labels[first] * classes + labels[second], return_counts=True)
        joint = int((times * times).sum()) / samples**2
        cross = int((times * counts[first][both // classes] * counts[second][both % classes]).sum()) / samples**3
        product = sizes[first] * sizes[second]
        distance = joint - 2 * cross + product
        total += max(0.0, distance - (1.0 - joint) / samples) / product
    return math.sqrt(total / len(pairs))


def mutual_information(blocks: Iterable[Tensor]) -> float:
    """I = mean over k of H(E_x[q_k(c|x)]) - E_x[H(q_k(c|x))], in nats per sample.

    A model that has learnt no more than its clients' class frequencies predicts the same for every sample: 0.

    Args:
        blocks: q_k, [K, M, C], all samples at once or in blocks.

    >>> blocks = [torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]]), torch.tensor([[[0.0, 1.0]], [[0.5, 0.5]]])]
    >>> round(mutual_information(blocks), 4)
    0.3466
    """
    samples, mass, entropies = 0, torch.zeros((), dtype=torch.long), torch.zeros((), dtype=torch.long)
    for block in blocks:
        samples += block.shape[1]
        # One model after another: no more memory than one model's block takes.
        mass = mass + torch.stack([_to_integers(one).sum(dim=0) for one in block]).cpu()
        entropies = entropies + torch.stack([_to_integers(entropy(one)).sum() for one in block]).cpu()
    information = entropy(mass.double() / (samples * _RESOLUTION)) - entropies.double() / (samples * _RESOLUTION)
    return max(0.0, float(information.mean()))


def informativeness(targets: Tensor) -> float:
    """How far targets tell samples apart: min(1, I / 0.5), I their mutual information per sample.

    Before models have learnt, they predict the same for every sample. A class that is frequent at the clients makes
    such targets correct more often than others, and nothing is learnt from them.

    Args:
        targets: q, [M, C].

    >>> round(informativeness(torch.tensor([[0.75, 0.25], [0.75, 0.25]])), 4), informativeness(torch.eye(2))
    (0.0, 1.0)
    """
    return min(1.0, mutual_information(block.unsqueeze(0) for block in targets.split(_ROWS)) / _INFORMATIVE)


def single_class_score(dependence: float, information: float, largest: float, fade: float) -> float:
    """How far the server's samples look like one class: a = [(f - T) / (0.4 f)] [I / 0.2] [(n - 0.4) / 0.2].

    Each bracket is clamped to [0, 1].

    Args:
        dependence: T, the `prediction_dependence` of the local models.
        information: I, the `mutual_information`, which separates untrained models from models that meet one class only.
        largest: n, the largest fraction of samples that the ensemble predicts as one class.
        fade: f, the dependence from which on the samples are of several classes; with 0 they always are.

    >>> cases = ((0.1, 0.3, 0.7), (0.2, 0.3, 0.7), (0.2, 0.1, 0.5))
    >>> [round(single_class_score(t, i, n, fade=0.25), 4) for t, i, n in cases]
    [1.0, 0.5, 0.125]
    >>> [single_class_score(t, i, n, fade=0.25) for t, i, n in ((0.25, 0.3, 0.7), (0.1, 0.0, 0.7), (0.1, 0.3, 0.4))]
    [0.0, 0.0, 0.0]
    """
    if dependence >= fade:
        return 0.0
    independent = min(1.0, (fade - dependence) / ((1.0 - _INDEPENDENT) * fade))
    return independent * min(1.0, information / _TRAINED) * min(1.0, max(0.0, (largest - _FEW) / (_MANY - _FEW)))


def _to_integers(values: Tensor) -> Tensor:
    return (values.double() * _RESOLUTION).round().long()
