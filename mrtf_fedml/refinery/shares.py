"""The classes that the server's set is thought to have, for `class_balance`; beyond the paper.

Symbols: K local models, M samples of the server, C classes; pi_c the share of class c, q(c|x) the ensemble, q_k(c|x)
the local models, P_jk(c, d) the share of samples that models j and k name c and d, p_k(c) that of model k alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations

import torch
from torch import Tensor

from .rectify import entropy

#: The least share of a class, in equal shares, and how fast the estimate of the shares follows the rounds.
LEAST_SHARE, SHARES_RATE = 0.1, 0.2
#: Below this part of `shares_fade` the votes are tied by nothing, and the shares are the round's own.
_UNTIED = 0.6
#: What a model must tell by a sample, in nats, to be one that knows: before it has learnt, it names one class always.
_KNOWING = 0.2
#: What targets must tell by a sample, in nats, to be worth learning from wholly.
_TELLING = 0.5
#: The share of samples that must be named one class for it to be the only one: not at all, and wholly.
_FEW, _MANY = 0.4, 0.6
#: Samples whose information is read at once, so that it takes little memory.
_ROWS = 4096
#: Parts into which a sum's terms are rounded, so that it is the same in whatever order it is made.
_GRAINS = 2.0**32


def floored_shares(shares: Tensor | None, classes: int) -> Tensor:
    """pi_c, [C], with at least a tenth of an equal share for every class; equal where nothing is known yet.

    >>> floored_shares(torch.tensor([1.0, 0.0]), classes=2)
    tensor([0.9524, 0.0476])
    """
    if shares is None:
        return torch.full((classes,), 1.0 / classes, dtype=torch.float64)
    # A class that nobody was given once may still be there: without a floor it could never come back.
    least = shares.clamp_min(LEAST_SHARE / classes)
    return least / least.sum()


def named_shares(probabilities: Tensor) -> Tensor:
    """The share of samples whose largest q(c|x) is c, [C], doubles.

    Classes that are named are counted, not their probabilities, which are too even to tell that a class is missing.

    >>> named_shares(torch.tensor([[0.6, 0.4, 0.0], [0.5, 0.2, 0.3], [0.1, 0.8, 0.1], [0.9, 0.0, 0.1]]))
    tensor([0.7500, 0.2500, 0.0000], dtype=torch.float64)
    """
    named = torch.bincount(probabilities.argmax(dim=1), minlength=probabilities.shape[1])
    return named.double() / len(probabilities)


def renewed_shares(shares: Tensor | None, probabilities: Tensor, learnt: float) -> Tensor:
    """pi_c' = (1 - r) pi_c + r * the share of samples whose largest q(c|x) is c; r = 0.2 * learnt.

    One round's ensemble is its clients'; over the rounds what they have by chance averages out. Who knows little names
    classes at random, and so hardly counts.

    Args:
        shares: pi, [C]; None before the first round, which begins with equal shares.
        probabilities: q, [M, C].
        learnt: 1 - (mean local loss / log C), in [0, 1].

    Returns:
        pi', [C], doubles.
    """
    return _moved(shares, probabilities, SHARES_RATE * learnt)


def one_kinds_shares(shares: Tensor | None, probabilities: Tensor, one_kind: float) -> Tensor:
    """Where the samples look like one class: pi_c' = (1 - a) pi_c + a * the share whose largest q(c|x) is c.

    Args:
        shares: pi, [C]; None where nothing is known yet and all are equal.
        probabilities: q before it is balanced, [M, C].
        one_kind: a, in [0, 1].

    Returns:
        pi', [C], doubles.
    """
    return _moved(shares, probabilities, one_kind)


def tie(votes: Tensor) -> float:
    """T = sqrt(mean over j < k of max(0, |P_jk - p_j p_k|^2 - (1 - |P_jk|^2) / M) / (|p_j|^2 |p_k|^2)), 0 or more.

    If the server's samples are of several classes, each model names now one class and now another, and what one names
    goes with what the other names, even where they never name the same: P_jk is far from the product p_j p_k. If all
    are of one class, what is left is each model's own error, and the two are near. T is their distance as a share of
    the product's size, without what chance adds in M samples. n classes that all know give sqrt(n - 1), one gives 0.

    It is made of whole numbers, pair by pair: the same on every machine.

    Args:
        votes: the class that each model names for each sample, [K, M].

    Returns:
        T. A model alone is tied to nobody and says nothing of it: 1, with which nothing fades.

    >>> alike, apart = torch.tensor([[0, 1, 2, 3], [5, 5, 6, 6]]), torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1]])
    >>> round(tie(alike.repeat(1, 100)), 4), tie(apart.repeat(1, 100))
    (0.9925, 0.0)
    """
    models, samples = votes.shape
    pairs = list(combinations(range(models), 2))
    if not pairs:
        return 1.0
    named = votes.long()
    classes = int(named.max()) + 1
    counts = [torch.bincount(one, minlength=classes) for one in named]
    sizes = [int((one * one).sum()) / samples**2 for one in counts]
    total = 0.0
    for first, second in pairs:
        # Of C * C pairs of classes only those that occur.
        both, times = torch.unique(named[first] * classes + named[second], return_counts=True)
        together = int((times * times).sum()) / samples**2
        by_chance = int((times * counts[first][both // classes] * counts[second][both % classes]).sum()) / samples**3
        product = sizes[first] * sizes[second]
        distance = together - 2 * by_chance + product
        total += max(0.0, distance - (1.0 - together) / samples) / product
    return math.sqrt(total / len(pairs))


def information(parts: Iterable[Tensor]) -> float:
    """I = mean over k of H(E_x[q_k(c|x)]) - E_x[H(q_k(c|x))], in nats: what the models tell by a sample.

    A model that has learnt its own classes' shares and no more says the same of every sample: 0.

    Args:
        parts: q_k, [K, M, C], all samples at once or some after others.

    >>> round(information([torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]]), torch.tensor([[[0.0, 1.0]], [[0.5, 0.5]]])]), 4)
    0.3466
    """
    samples, mass, entropies = 0, torch.zeros((), dtype=torch.long), torch.zeros((), dtype=torch.long)
    for part in parts:
        samples += part.shape[1]
        # One model after another: no more memory than a model's part takes.
        mass = mass + torch.stack([_grains(one).sum(dim=0) for one in part]).cpu()
        entropies = entropies + torch.stack([_grains(entropy(one)).sum() for one in part]).cpu()
    told = entropy(mass.double() / (samples * _GRAINS)) - entropies.double() / (samples * _GRAINS)
    return max(0.0, float(told.mean()))


def knowing(targets: Tensor) -> float:
    """How far targets tell samples apart: min(1, I / 0.5), I their information on a sample.

    Before models have learnt, they say the same of every sample. A class that is frequent at the clients makes such
    targets right more often than others, and nothing is learnt by them.

    Args:
        targets: q, [M, C].

    >>> round(knowing(torch.tensor([[0.75, 0.25], [0.75, 0.25]])), 4), knowing(torch.eye(2))
    (0.0, 1.0)
    """
    return min(1.0, information(part.unsqueeze(0) for part in targets.split(_ROWS)) / _TELLING)


def one_kind(tie: float, information: float, most: float, fade: float) -> float:
    """How far the server's samples look like one class: a = [(f - T) / (0.4 f)] [I / 0.2] [(n - 0.4) / 0.2].

    Each bracket is held in [0, 1].

    Args:
        tie: T.
        information: I, by which models that know nothing yet are told from models that meet one class only.
        most: n, the largest share of samples that the ensemble names one class.
        fade: f, the tie from which on the samples are of several classes; with 0 they always are.

    >>> [round(one_kind(t, i, n, fade=0.25), 4) for t, i, n in ((0.1, 0.3, 0.7), (0.2, 0.3, 0.7), (0.2, 0.1, 0.5))]
    [1.0, 0.5, 0.125]
    >>> [one_kind(t, i, n, fade=0.25) for t, i, n in ((0.25, 0.3, 0.7), (0.1, 0.0, 0.7), (0.1, 0.3, 0.4))]
    [0.0, 0.0, 0.0]
    """
    if tie >= fade:
        return 0.0
    untied = min(1.0, (fade - tie) / ((1.0 - _UNTIED) * fade))
    return untied * min(1.0, information / _KNOWING) * min(1.0, max(0.0, (most - _FEW) / (_MANY - _FEW)))


def _grains(values: Tensor) -> Tensor:
    return (values.double() * _GRAINS).round().long()


def _moved(shares: Tensor | None, probabilities: Tensor, rate: float) -> Tensor:
    """(1 - rate) pi + rate * the named shares; equal shares stand for those that are not known."""
    named = named_shares(probabilities)
    before = torch.full_like(named, 1.0 / len(named)) if shares is None else shares.to(named)
    return (1.0 - rate) * before + rate * named
