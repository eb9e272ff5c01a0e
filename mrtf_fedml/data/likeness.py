"""How alike two sets of samples are, without labels: whether one can be told from the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Rows = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

#: From fewer samples nothing is told, and more make it slow and no truer.
FEWEST, _MOST = 20, 1000
#: Samples per side that tell whether two sets are of one kind.
_ENOUGH = 300
#: So many directions of the samples are looked at.
_DIRECTIONS = 50
#: A feature that lies so many deviations away is worth its name.
_AWAY = 0.5


def told_apart(one: Tensor, other: Tensor) -> float | None:
    """How well a classifier tells samples [N, ...] of the one set from those of the other, as the area under its curve.

    0.5 is guessing: the two are alike. 1 is always right. It is trained on four fifths and tried on the last, five
    times, on the means and the spreads of the samples' main directions. None where there are too few samples, or they
    are indices.
    """
    if min(len(one), len(other)) < FEWEST or not one.is_floating_point():
        return None
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.preprocessing import StandardScaler

    parts = [few(one), few(other)]
    samples, side = np.concatenate(parts), np.repeat([0, 1], [len(part) for part in parts])
    with np.errstate(all="ignore"):
        scaled = StandardScaler().fit_transform(samples)
    if not np.isfinite(scaled).all():
        # Numbers so large that their squares are none.
        return None
    if not scaled.any():
        return 0.5
    directions = min(_DIRECTIONS, scaled.shape[1], len(scaled) // 4)
    main = PCA(directions, whiten=True, random_state=0).fit_transform(scaled)
    classifier = LogisticRegression(C=0.1, max_iter=500, class_weight="balanced")
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    scores = cross_val_predict(classifier, np.hstack([main, main**2]), side, cv=folds, method="decision_function")
    return float(roc_auc_score(side, scores))


def told_apart_within_classes(one: Rows, classes: Labels, other: Rows, given: Labels) -> float | None:
    """The same of rows [N, D] and [M, D], where it is not their classes that tell them apart.

    Once with as many of each class from either side, so that it makes no difference which classes either has more of,
    and once as they are, so that labels which are wrong make none. The less of both.

    >>> rows, classes = np.random.default_rng(0).normal(size=(400, 2)), np.arange(400) % 2
    >>> told_apart_within_classes(rows[:200], classes[:200], rows[200:], classes[200:]) < 0.7
    True
    >>> told_apart_within_classes(rows[:200], classes[:200], rows[200:] + 9, classes[200:])
    1.0
    """
    # A sample that stands there twice would be known again.
    _, first = np.unique(other, axis=0, return_index=True)
    other, given = other[first], given[first]
    lot, chosen = np.random.default_rng(0), []
    for label in np.unique(given):
        both = [lot.permutation(np.flatnonzero(side == label)) for side in (classes, given)]
        most = min(len(places) for places in both)
        chosen.append([places[:most] for places in both])
    ours, theirs = (np.concatenate(places) for places in zip(*chosen, strict=True))
    among = lot.permutation(len(ours))[:_ENOUGH]
    pairs = (
        (one[ours[among]], other[theirs[among]]),
        tuple(rows[lot.permutation(len(rows))[:_ENOUGH]] for rows in (one, other)),
    )
    told = [told_apart(*map(torch.from_numpy, pair)) for pair in pairs]
    known = [area for area in told if area is not None]
    return min(known) if len(known) == len(told) else None


def far_features(one: Tensor, other: Tensor, names: Sequence[str] | None, most: int = 3) -> list[tuple[str, float]]:
    """The features of a table whose means lie farthest apart, with the distance in deviations of the first set."""
    if one.ndim != 2 or not one.is_floating_point():
        return []
    deviation = one.double().std(dim=0).clamp_min(1e-12)
    apart = (one.double().mean(dim=0) - other.double().mean(dim=0)).abs() / deviation
    order = [int(place) for place in apart.argsort(descending=True)[:most] if float(apart[place]) >= _AWAY]
    return [(names[place] if names else f"feature {place}", float(apart[place])) for place in order]


def few(samples: Tensor) -> npt.NDArray[np.float64]:
    """Evenly spaced ones, a row each."""
    chosen = np.linspace(0, len(samples) - 1, min(len(samples), _MOST)).astype(np.int64)
    return samples[chosen].flatten(1).double().cpu().numpy()
