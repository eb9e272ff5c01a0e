"""What the clients' losses over the rounds say of a run: training that overshoots, gets worse, or teaches nothing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

#: log C is the loss of guessing. Clients that meet a model trained on other classes start above it; five times it, as
#: a mean over a client's whole round, is a step that overshoots.
_OVERSHOOTING = 5.0
#: The middle of three rounds against the middle of three: single rounds differ by who took part. Small losses may
#: double without meaning; half of guessing is no longer small.
_ROUNDS, _GROWN, _NOT_SMALL = 3, 2.0, 0.5
#: A run that goes well ends far below both: guessing by a client's own shares of classes, and its first round. Clients
#: of one class each guess without loss; there a quarter of log C counts.
_NEAR_GUESSING, _HARDLY_LESS, _LITTLE = 0.9, 0.8, 0.25
#: Where clients have few classes each, their losses rise with every average; only those who have nearly all are judged.
_NEARLY_ALL, _POOR = 0.8, 0.5


def sign_of_losses(losses: Sequence[float], classes: int, counts: npt.NDArray[np.int64] | None) -> str | None:
    """What looks wrong; None where nothing does.

    Args:
        losses: the mean local loss of each round that has one.
        classes: C.
        counts: n_{k,c} [K, C], the clients' samples per class; None where they are not known.
    """
    guessing = math.log(max(classes, 2))
    own = guessing if counts is None else _entropy(counts)
    return (
        _overshooting(losses, guessing)
        or _growing(losses, guessing)
        or _nothing_learnt(losses, guessing, own)
        or _poorly_fitted(losses, guessing, own)
    )


def _overshooting(losses: Sequence[float], guessing: float) -> str | None:
    late = losses[len(losses) // 2 :]
    if not late or max(late) <= _OVERSHOOTING * guessing:
        return None
    return (
        f"the clients' training loss reached {max(late):.3g}, where guessing has {guessing:.2f}: training overshoots; "
        "lower learning_rate, or bring the features to one scale (data_args.standardize)"
    )


def _growing(losses: Sequence[float], guessing: float) -> str | None:
    if len(losses) < 2 * _ROUNDS:
        return None
    before = min(statistics.median(losses[i : i + _ROUNDS]) for i in range(len(losses) - 2 * _ROUNDS + 1))
    now = statistics.median(losses[-_ROUNDS:])
    if now < _GROWN * before or now < _NOT_SMALL * guessing:
        return None
    return (
        f"the clients' training loss grows (from {before:.3g} to {now:.3g}): the rounds make the model worse; lower "
        "learning_rate or epochs"
    )


def _nothing_learnt(losses: Sequence[float], guessing: float, own: float) -> str | None:
    """The loss stays where it began, and is no better than naming a client's own classes in their shares."""
    if len(losses) < 2:
        return None
    now = statistics.median(losses[-_ROUNDS:])
    if now < max(_NEAR_GUESSING * own, _LITTLE * guessing) or now < _HARDLY_LESS * losses[0]:
        return None
    return (
        f"the clients' training loss is {now:.3g} at the end and was {losses[0]:.3g} in the first round, where "
        f"guessing by their own classes has {own:.2f}: they have learnt nearly nothing; train for more rounds, try "
        "another learning_rate, and check the clients' labels"
    )


def _poorly_fitted(losses: Sequence[float], guessing: float, own: float) -> str | None:
    """Clients who have nearly all classes, and whose models are nearer to guessing than to their own labels."""
    if not losses or own < _NEARLY_ALL * guessing:
        return None
    now = statistics.median(losses[-_ROUNDS:])
    if now < _POOR * own:
        return None
    return (
        f"the clients' models fit their own samples poorly (loss {now:.3g}, where guessing has {own:.2f}), so many of "
        "these labels may be wrong; train for more rounds, or try another learning_rate or model"
    )


def _entropy(counts: npt.NDArray[np.int64]) -> float:
    """Of the labels of a client, as a mean over all samples."""
    sizes = counts.sum(axis=1)
    shares = counts / np.maximum(sizes, 1)[:, None]
    entropies = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1)
    return float(np.average(entropies, weights=sizes))
