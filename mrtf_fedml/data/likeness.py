"""How alike two sets of samples are, without labels: whether one can be told from the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

#: From fewer samples nothing is told, and more make it slow and no truer.
_FEWEST, _MOST = 20, 1000
#: So many directions of the samples are looked at.
_DIRECTIONS = 50
#: Samples of more numbers are projected before distances are taken.
_WIDEST = 512
#: A feature that lies so many deviations away is worth its name.
_AWAY = 0.5


def told_apart(one: Tensor, other: Tensor) -> float | None:
    """How well a classifier tells samples [N, ...] of the one set from those of the other, as the area under its curve.

    0.5 is guessing: the two are alike. 1 is always right. It is trained on four fifths and tried on the last, five
    times, on the means and the spreads of the samples' main directions. None where there are too few samples, or they
    are indices.
    """
    if min(len(one), len(other)) < _FEWEST or not one.is_floating_point():
        return None
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.preprocessing import StandardScaler

    parts = [_few(one), _few(other)]
    samples, side = np.concatenate(parts), np.repeat([0, 1], [len(part) for part in parts])
    scaled = StandardScaler().fit_transform(samples)
    directions = min(_DIRECTIONS, scaled.shape[1], len(scaled) // 4)
    main = PCA(directions, whiten=True, random_state=0).fit_transform(scaled)
    classifier = LogisticRegression(C=0.1, max_iter=500, class_weight="balanced")
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    scores = cross_val_predict(classifier, np.hstack([main, main**2]), side, cv=folds, method="decision_function")
    return float(roc_auc_score(side, scores))


def novelty(known: Tensor, other: Tensor) -> float | None:
    """The share of the other samples that lie farther from all known ones than known ones lie from each other.

    A known sample's distance is that to its nearest neighbour among the rest; farther means beyond 95 of 100 of these.
    So 0.05 is expected of two sets of one kind, whichever classes either has more of: a sample only needs one neighbour
    of its own kind. None where there are too few samples, or they are indices.
    """
    if min(len(known) // 2, len(other)) < _FEWEST or not known.is_floating_point():
        return None
    known = known.cpu()
    ours, theirs = _few(known), _few(other)
    mean, deviation = ours.mean(axis=0), ours.std(axis=0)
    # A feature that is constant among the known is one in which any other value is new.
    scale = np.where(deviation > 1e-6, deviation, 1.0) if known.ndim == 2 else max(float(deviation.mean()), 1e-6)
    ours, theirs = _narrow((ours - mean) / scale), _narrow((theirs - mean) / scale)
    half = len(ours) // 2
    # Both look for a neighbour among the same samples, so that their number favours neither.
    among, asked = ours[::2][:half], ours[1::2][:half]
    usual = np.quantile(_nearest(asked, among), 0.95)
    return float(np.mean(_nearest(theirs, among) > usual))


def _nearest(points: npt.NDArray[np.float64], among: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    squares = (points**2).sum(axis=1)[:, None] + (among**2).sum(axis=1)[None] - 2 * points @ among.T
    return np.sqrt(np.maximum(squares.min(axis=1), 0))


def _narrow(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Wide samples by a random projection, which keeps distances."""
    if rows.shape[1] <= _WIDEST:
        return rows
    projection = np.random.default_rng(0).normal(size=(rows.shape[1], _WIDEST)) / np.sqrt(_WIDEST)
    return rows @ projection


def far_features(one: Tensor, other: Tensor, names: Sequence[str] | None, most: int = 3) -> list[tuple[str, float]]:
    """The features of a table whose means lie farthest apart, with the distance in deviations of the first set."""
    if one.ndim != 2 or not one.is_floating_point():
        return []
    deviation = one.double().std(dim=0).clamp_min(1e-12)
    apart = (one.double().mean(dim=0) - other.double().mean(dim=0)).abs() / deviation
    order = [int(place) for place in apart.argsort(descending=True)[:most] if float(apart[place]) >= _AWAY]
    return [(names[place] if names else f"feature {place}", float(apart[place])) for place in order]


def _few(samples: Tensor) -> npt.NDArray[np.float64]:
    """Evenly spaced ones, a row each."""
    chosen = np.linspace(0, len(samples) - 1, min(len(samples), _MOST)).astype(np.int64)
    return samples[chosen].flatten(1).double().cpu().numpy()
