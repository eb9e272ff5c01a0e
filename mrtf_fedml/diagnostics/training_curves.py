"""Checks of the clients' training losses over the rounds: divergence, growth, no progress, poor fit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

#: In multiples of log C, the loss of guessing. Clients that receive a model trained on other classes start above 1;
#: a mean of 5 over a client's whole round means that its steps are too large.
_DIVERGING = 5.0
#: Medians of three rounds are compared, since single rounds differ by the clients that take part. Small losses may
#: double without meaning; half of log C is not small.
_WINDOW, _GROWTH, _NOT_SMALL = 3, 2.0, 0.5
#: A run that trains ends far below both: guessing by a client's own class frequencies, and its first round. Clients of
#: one class guess without loss; for them a quarter of log C counts.
_NEAR_GUESSING, _NEAR_FIRST_ROUND, _FLOOR = 0.9, 0.8, 0.25
#: With few classes per client losses rise after every aggregation, so the fit is checked only with nearly all classes.
_NEARLY_ALL_CLASSES, _POOR_FIT = 0.8, 0.5


def warn_training_failed(losses: Sequence[float], classes: int, counts: npt.NDArray[np.int64] | None) -> str | None:
    """A warning if the loss diverges, grows or does not fall.

    Args:
        losses: the mean training loss of each round that has one.
        classes: C.
        counts: n_{k,c} [K, C], the clients' samples per class; None if unknown.
    """
    guessing = math.log(max(classes, 2))
    own_guessing = guessing if counts is None else _label_entropy(counts)
    return (
        _warn_diverging(losses, guessing)
        or _warn_growing(losses, guessing)
        or _warn_no_progress(losses, guessing, own_guessing)
    )


def warn_poor_fit(losses: Sequence[float], classes: int, counts: npt.NDArray[np.int64] | None) -> str | None:
    """A warning if clients with nearly all classes end nearer to guessing than to their labels. Arguments as above."""
    guessing = math.log(max(classes, 2))
    own_guessing = guessing if counts is None else _label_entropy(counts)
    if not losses or own_guessing < _NEARLY_ALL_CLASSES * guessing:
        return None
    last = statistics.median(losses[-_WINDOW:])
    if last < _POOR_FIT * own_guessing:
        return None
    return (
        f"the clients' models fit their own samples poorly (training loss {last:.3g}, guessing has "
        f"{own_guessing:.2f}), so many of these labels may be wrong; train for more rounds, or try another "
        "learning_rate or model"
    )


def _warn_diverging(losses: Sequence[float], guessing: float) -> str | None:
    second_half = losses[len(losses) // 2 :]
    if not second_half or max(second_half) <= _DIVERGING * guessing:
        return None
    return (
        f"the clients' training loss reached {max(second_half):.3g} (guessing has {guessing:.2f}): training diverges; "
        "lower learning_rate, or scale the features (data_args.standardize)"
    )


def _warn_growing(losses: Sequence[float], guessing: float) -> str | None:
    if len(losses) < 2 * _WINDOW:
        return None
    lowest = min(statistics.median(losses[i : i + _WINDOW]) for i in range(len(losses) - 2 * _WINDOW + 1))
    last = statistics.median(losses[-_WINDOW:])
    if last < _GROWTH * lowest or last < _NOT_SMALL * guessing:
        return None
    return (
        f"the clients' training loss grows (from {lowest:.3g} to {last:.3g}): the model gets worse; lower "
        "learning_rate or epochs"
    )


def _warn_no_progress(losses: Sequence[float], guessing: float, own_guessing: float) -> str | None:
    """The loss stays near its first value, and is not below guessing by the client's own class frequencies."""
    if len(losses) < 2:
        return None
    last = statistics.median(losses[-_WINDOW:])
    if last < max(_NEAR_GUESSING * own_guessing, _FLOOR * guessing) or last < _NEAR_FIRST_ROUND * losses[0]:
        return None
    return (
        f"the clients' training loss is {last:.3g} at the end and was {losses[0]:.3g} in the first round (guessing by "
        f"their own classes has {own_guessing:.2f}): they have learnt almost nothing; train for more rounds, try "
        "another learning_rate, and check the clients' labels"
    )


def _label_entropy(counts: npt.NDArray[np.int64]) -> float:
    """The entropy of a client's labels, as a mean over all samples."""
    sizes = counts.sum(axis=1)
    frequencies = counts / np.maximum(sizes, 1)[:, None]
    entropies = -(frequencies * np.log(np.where(frequencies > 0, frequencies, 1))).sum(axis=1)
    return float(np.average(entropies, weights=sizes))
