"""Whether the server's features have moved as no mixture of the clients' classes could move them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

#: A feature has moved where its mean lies outside by so many of its deviations, and by so many standard errors.
_DEVIATIONS, _ERRORS = 0.5, 4.0


def moved_features(known: Rows, classes: Labels, other: Rows) -> float:
    """The share of the features that have moved.

    Whatever classes the server has, and however often, a feature's mean is then a mixture of its means within the
    classes and lies between the least and the largest of them. Other units, or another instrument, move it beyond.

    >>> known, classes = np.array([[0.0, 0.0], [1.0, 4.0]] * 50), np.array([0, 1] * 50)
    >>> moved_features(known, classes, known[1:10:2])
    0.0
    >>> moved_features(known, classes, np.array([[0.5, 9.0]] * 100))
    0.5

    Args:
        known: of the clients, [N, D].
        classes: theirs, [N].
        other: the server's, [M, D].
    """
    means = np.stack([known[classes == label].mean(axis=0) for label in np.unique(classes)])
    fewest = min(np.unique(classes, return_counts=True)[1].min(), len(other))
    deviation = np.maximum(known.std(axis=0), other.std(axis=0))
    beyond = np.maximum(means.min(axis=0) - other.mean(axis=0), other.mean(axis=0) - means.max(axis=0))
    return float((beyond > deviation * max(_DEVIATIONS, _ERRORS / np.sqrt(fewest)) + 1e-12).mean())
