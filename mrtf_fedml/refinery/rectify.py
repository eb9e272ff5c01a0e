"""Rectified distillation (Sect. 4.2): confident local models speak louder, and the global models speak too.

Symbols: K local models, M samples of the server, C classes; e_k(x) the entropy of model k on x, w_k(x) its weight,
u_t the weight of the local models against the global ones, theta_t and theta_{t+1} the round's initial and
aggregated models.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .teachers import Scale, standardised

#: The least weight of the local models: what Eq. 10 leaves them when their loss is zero.
LEAST_LOCAL_WEIGHT = 0.25


def entropy(probabilities: Tensor) -> Tensor:
    """e_k(x) = -sum_c q_k(c|x) log q_k(c|x), natural logarithm, 0 log 0 = 0.

    Args:
        probabilities: q_k, [..., C].

    Returns:
        e_k(x), [...].
    """
    return torch.special.entr(probabilities).sum(dim=-1)


def confidence_weights(entropies: Tensor) -> Tensor:
    """w_k(x) = softmax over the local models of -e_k(x): the surer a model, the more it teaches x.

    Args:
        entropies: e_k(x), [K, M].

    Returns:
        w_k(x), [K, M]; columns sum to one.
    """
    return torch.softmax(-entropies, dim=0)


def familiarity_weights(
    logits: Tensor, entropies: Tensor, strength: float, familiar: float, scale: Scale | None = None
) -> Tensor:
    """w_k(x) = softmax over the local models of s m max_c f_kc(x) / std(f_k) - (1 - m) e_k(x); beyond the paper.

    A model that has seen such samples has large logits on them; one that has not may still be sure. So early on what
    counts is how familiar a sample is to a model, not how sure the model is; sureness takes over as the models learn.

    Args:
        logits: f_k, [K, M, C].
        entropies: e_k(x), [K, M].
        strength: s, at least 0.
        familiar: m, in [0, 1]; 0 gives `confidence_weights`.
        scale: of all the models' logits, where these are some rows of them.

    Returns:
        w_k(x), [K, M]; columns sum to one.
    """
    sizes = standardised(logits, scale).amax(dim=-1)
    return torch.softmax(strength * familiar * sizes - (1.0 - familiar) * entropies, dim=0)


def familiarity_share(relative_loss: float, fade: float) -> float:
    """How far familiarity stands in for sureness: m = min(1, (mean local loss / log C) / fade).

    >>> familiarity_share(0.25, fade=0.5), familiarity_share(0.9, fade=0.5), familiarity_share(0.1, fade=0.0)
    (0.5, 1.0, 1.0)
    """
    return 1.0 if fade == 0.0 else min(1.0, relative_loss / fade)


def relative_loss(local_loss: float, classes: int) -> float:
    """The mean local loss as a share of log C, the loss of a model that knows nothing; held in [0, 1].

    >>> relative_loss(math.log(10) / 2, classes=10)
    0.5
    """
    if not math.isfinite(local_loss):
        raise ValueError(f"the mean local loss is {local_loss}, not a finite number")
    if classes < 2:
        return 0.0
    return min(1.0, max(0.0, local_loss / math.log(classes)))


def loss_before(earlier: list[float], classes: int) -> float:
    """The mean of earlier rounds' local losses, by which `loss_window` judges; before any, log C.

    >>> loss_before([1.0, 2.0], classes=10)
    1.5
    """
    return sum(earlier) / len(earlier) if earlier else math.log(max(classes, 2))


def local_weight(local_loss: float, classes: int) -> float:
    """u_t = 0.25 + 0.75 * (mean local loss) / log C, held in [0.25, 1].

    >>> local_weight(0.0, classes=10), local_weight(99.0, classes=10)
    (0.25, 1.0)
    """
    return LEAST_LOCAL_WEIGHT + (1.0 - LEAST_LOCAL_WEIGHT) * relative_loss(local_loss, classes)


def self_taught(local: Tensor, global_probabilities: Tensor, local_weight: float) -> Tensor:
    """Eq. 10: q_RAP = u_t * q_local + (1 - u_t) / 2 * (q_g(theta_t) + q_g(theta_{t+1})).

    Args:
        local: the local models' weighted ensemble, [M, C].
        global_probabilities: q_g of the initial and of the aggregated model, [2, M, C].
        local_weight: u_t.

    Returns:
        q_RAP, [M, C].
    """
    return local_weight * local + (1.0 - local_weight) / 2 * global_probabilities.sum(dim=0)


def jointly_confident(local: Tensor, global_probabilities: Tensor, entropies: Tensor, local_weight: float) -> Tensor:
    """Eq. 10 as in the authors' program: local and global models are weighed by one softmax of their entropies.

    q = (K + 2) * (u_t / K sum_k w_k(x) q_k + (1 - u_t) / 2 sum_g w_g(x) q_g), w(x) = softmax over all K + 2 of -e(x).

    Args:
        local: q_k of the local models, [K, M, C].
        global_probabilities: q_g of the initial and of the aggregated model, [2, M, C].
        entropies: e(x) of the local models, then of the two, [K + 2, M].
        local_weight: u_t.

    Returns:
        q, [M, C]. Rows sum to one only where all models are equally sure; that sum is the say of x in Eq. 11.
    """
    clients = len(local)
    shares = torch.full((clients + 2,), local_weight / clients, dtype=local.dtype, device=local.device)
    shares[clients:] = (1.0 - local_weight) / 2
    weights = (clients + 2) * shares[:, None] * confidence_weights(entropies)
    return torch.einsum("km,kmc->mc", weights, torch.cat([local, global_probabilities]))


def class_balanced(probabilities: Tensor, balance: float, shares: Tensor | None = None) -> Tensor:
    """q'(c|x) is proportional to q(c|x) (pi_c / m_c)^b, m_c = E[q(c|x)]; beyond the paper.

    The clients of a round hold some classes more often than others, and so does their ensemble, whatever the server's
    samples are. Dividing by a power of the mass m_c takes back what a class owes to the choice of clients alone, and
    pi_c says what it has a right to. It reads no label: m_c is the ensemble's own.

    Args:
        probabilities: q, [M, C].
        balance: b, in [0, 1]; 0 changes nothing, and 1 gives every class the say of its share.
        shares: pi, [C]; None where all classes are alike.

    Returns:
        q', [M, C]. A class without mass stays without.
    """
    if balance == 0.0:
        return probabilities
    mass = probabilities.mean(dim=0, keepdim=True)
    evened = probabilities / mass.masked_fill(mass <= 0, 1.0) ** balance
    if shares is not None:
        evened = evened * shares.to(evened) ** balance
    return evened / evened.sum(dim=1, keepdim=True)


def faded(strength: float, unlike: float, fade: float) -> float:
    """The strength s of what makes up for the clients that are not chosen: s * min(1, D / fade); beyond the paper.

    Where the models of those that were chosen agree, the others would say the same: a class that is seldom named is
    rare on the server, and targets of earlier rounds are only older.

    Args:
        strength: s.
        unlike: D, in [0, 1], the `disagreement` of the round's local models.
        fade: the disagreement from which on s is left whole; with 0 it always is.

    >>> faded(0.8, unlike=0.25, fade=0.5), faded(0.8, unlike=0.75, fade=0.5), faded(0.8, unlike=0.25, fade=0.0)
    (0.4, 0.8, 0.8)
    """
    return strength if fade == 0.0 else strength * min(1.0, unlike / fade)
