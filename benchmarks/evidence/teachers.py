"""Finished models as teachers on scikit-learn's tables: the figures of docs/guides/existing_models.md.

    python benchmarks/evidence/teachers.py

Three teachers are trained on a fifth of the samples each; the last fifth is labelled. Mean accuracy over five splits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from mrtf_fedml import label

SEEDS = 5
MAKERS: Sequence[Callable[[], Any]] = (
    lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
    lambda: RandomForestClassifier(50, random_state=0),
    lambda: make_pipeline(StandardScaler(), LinearSVC()),
)
COLUMNS = (
    "one teacher",
    "three",
    "permuted labels",
    "rotated classes",
    "few classes: majority",
    "few classes: label()",
)


def measure(x: np.ndarray, y: np.ndarray, seed: int) -> list[float]:
    """The accuracies of one split, in the order of `COLUMNS`."""
    order, size, classes = np.random.default_rng(seed).permutation(len(x)), len(x) // 5, int(y.max()) + 1
    parts, server = [order[index * size : (index + 1) * size] for index in range(4)], order[4 * size :]
    good = [maker().fit(x[rows], y[rows]) for maker, rows in zip(MAKERS, parts, strict=False)]
    permuted = MAKERS[1]().fit(x[parts[3]], np.random.default_rng(1).permutation(y[parts[3]]))
    rotated = (np.roll(good[1].predict_proba(x[server]), -1, axis=1), range(classes))
    few = []
    for index, (maker, rows) in enumerate(zip(MAKERS, parts, strict=False)):
        kept = rows[y[rows] % 3 != index] if classes > 2 else rows
        few.append(maker().fit(x[kept], y[kept]))
    majority = np.mean([np.eye(classes)[model.predict(x[server])] for model in few], axis=0).argmax(axis=1)

    def accuracy(teachers: Sequence[Any]) -> float:
        return float(label(x[server], teachers=teachers, y_server=y[server]).accuracy or 0.0)

    return [
        float(np.mean([np.mean(model.predict(x[server]) == y[server]) for model in good])),
        accuracy(good),
        accuracy([good[0], good[2], permuted]),
        accuracy([good[0], good[2], rotated]),
        float(np.mean(majority == y[server])),
        accuracy(few),
    ]


if __name__ == "__main__":
    print("table", *COLUMNS, sep=" | ")
    for load in (load_wine, load_breast_cancer, load_digits):
        rows = [measure(*load(return_X_y=True), seed) for seed in range(SEEDS)]
        print(load.__name__, *(f"{value:.3f}" for value in np.mean(rows, axis=0)), sep=" | ")
