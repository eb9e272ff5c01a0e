"""Files that a run writes for its report, because they need its model or its teachers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from ..training.loop import Run

Floats = npt.NDArray[np.floating]

AGREEMENT, FEATURES, FEATURES_INDEX = "agreement.npy", "features.npy", "features_index.npy"

#: At most about this many samples are in the feature map, evenly spaced: more take long and show nothing new.
MAX_SAMPLES = 1500
#: The number of samples of lowest confidence, which are always in the feature map and marked.
UNCERTAIN = 24
#: The number of principal components of the features that are kept.
COMPONENTS = 50


def write_agreement(run: Run) -> None:
    """Write agreement.npy [M]: the fraction of the last round's teachers that predict the sample's label."""
    teacher_labels = None if run.record is None else run.record.report.teacher_labels
    if teacher_labels is None:
        return
    labels = run.prediction_logits().argmax(dim=1).cpu()
    if teacher_labels.shape[1] == len(labels):
        run.directory.write_array(AGREEMENT, (teacher_labels == labels).float().mean(dim=0).numpy())


def write_features(run: Run) -> None:
    """Write features.npy [N, D], h(x) of the rows of the feature map, and features_index.npy [N], their indices."""
    logits = run.prediction_logits()
    confidences = torch.softmax(logits.detach().cpu().float(), dim=1).amax(dim=1).numpy()
    rows, _ = select_samples(confidences)
    # A model that predicts every position of a sample has one row per position.
    positions = len(logits) // len(run.context.inputs)
    samples, inverse = np.unique(rows // positions, return_inverse=True)
    features = run.context.features(run.state.prediction_weights, torch.from_numpy(samples)).detach().cpu()
    selected = features.reshape(len(samples) * positions, -1)[torch.from_numpy(inverse * positions + rows % positions)]
    run.directory.write_array(FEATURES, reduce_features(selected.float().numpy()))
    run.directory.write_array(FEATURES_INDEX, rows)


def select_samples(confidences: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The indices of the samples in the feature map, ascending, and which of them are the least confident."""
    total = len(confidences)
    even = np.unique(np.linspace(0, total - 1, min(total, MAX_SAMPLES)).round().astype(np.int64))
    least = np.argsort(confidences, kind="stable")[:UNCERTAIN]
    selected = np.union1d(even, least)
    return selected, np.isin(selected, least)


def reduce_features(features: Floats) -> Floats:
    """The features projected to at most 50 principal directions.

    The rows are not centred first, which preserves the angles between them, for the paper's cosine distance.

    >>> rows = np.eye(3, 80, dtype=np.float32)
    >>> bool(np.allclose(reduce_features(rows) @ reduce_features(rows).T, np.eye(3), atol=1e-6))
    True
    """
    if features.shape[1] <= COMPONENTS or not np.isfinite(features).all():
        return features
    _, _, directions = np.linalg.svd(features, full_matrices=False)
    return features @ directions[:COMPONENTS].T
