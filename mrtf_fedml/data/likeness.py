"""How alike two sets of samples are, without labels: whether one can be told from the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

#: From fewer samples nothing is told, and more make it slow and no truer.
FEWEST, _MOST = 20, 1000
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
    scaled = StandardScaler().fit_transform(samples)
    directions = min(_DIRECTIONS, scaled.shape[1], len(scaled) // 4)
    main = PCA(directions, whiten=True, random_state=0).fit_transform(scaled)
    classifier = LogisticRegression(C=0.1, max_iter=500, class_weight="balanced")
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    scores = cross_val_predict(classifier, np.hstack([main, main**2]), side, cv=folds, method="decision_function")
    return float(roc_auc_score(side, scores))


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
