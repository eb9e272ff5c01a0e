"""Corrections of the distillation targets between rounds; beyond the paper.

Symbols: M samples of the server, C classes, q(c|x) the targets.
"""

from __future__ import annotations

from torch import Tensor

from .ensemble import relative_loss


def smooth_targets(targets: Tensor, previous: Tensor | None, train_loss: float, strength: float) -> Tensor:
    """q_t = (1 - w) q + w q_(t-1), w = s * (1 - min(1, mean local loss / log C)).

    The better the clients have learnt, the more the last round's targets are worth keeping.

    Args:
        targets: q of this round, [M, C].
        previous: the last round's smoothed targets, [M, C]; None in the first round, which keeps nothing.
        train_loss: the clients' mean local loss.
        strength: s, in [0, 1]; 0 keeps nothing.

    Returns:
        q_t, [M, C].
    """
    if previous is None or strength == 0.0:
        return targets
    kept = strength * (1.0 - relative_loss(train_loss, targets.shape[-1]))
    return (1.0 - kept) * targets + kept * previous.to(targets)


def sharpen_targets(targets: Tensor, train_loss: float, strength: float) -> Tensor:
    """q'(c|x) = q(c|x)^p / sum_d q(d|x)^p, p = 1 + (s - 1) * (1 - min(1, mean local loss / log C)).

    An average of many teachers is softer than any of them, and a student that follows it loses confidence from round to
    round. But teachers that have learnt little are often confident and wrong: p stays near 1 until they have learnt.

    Args:
        targets: q, [M, C].
        train_loss: the clients' mean local loss.
        strength: s, at least 1, which changes nothing.

    Returns:
        q', [M, C].
    """
    if strength == 1.0:
        return targets
    power = 1.0 + (strength - 1.0) * (1.0 - relative_loss(train_loss, targets.shape[-1]))
    # By the largest entry first: a power of small numbers alone would leave the range of floats.
    powers = (targets / targets.amax(dim=1, keepdim=True)) ** power
    return powers / powers.sum(dim=1, keepdim=True)
