"""What the report shows and only a run that still has its model and its teachers can write down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from .facts import Floats
from .landscape import COMPONENTS, chosen_of

if TYPE_CHECKING:
    from ..rounds.loop import Run

AGREEMENT, FEATURES, FEATURES_INDEX = "agreement.npy", "features.npy", "features_index.npy"


def keep_agreement(run: Run) -> None:
    """agreement.npy [M]: the share of the last round's teachers that name the class which the sample was given."""
    if run.votes is None:
        return
    given = run.answer_logits().argmax(dim=1).cpu()
    if run.votes.shape[1] == len(given):
        run.store.write_array(AGREEMENT, (run.votes == given).float().mean(dim=0).numpy())


def keep_features(run: Run) -> None:
    """features.npy [N, D]: h(x) of the rows that a picture shows, and features_index.npy [N]: which these are."""
    logits = run.answer_logits()
    confidences = torch.softmax(logits.detach().cpu().float(), dim=1).amax(dim=1).numpy()
    rows, _ = chosen_of(confidences)
    # A sample has a row per position, where the model answers at each.
    positions = len(logits) // len(run.bench.inputs)
    samples, places = np.unique(rows // positions, return_inverse=True)
    features = run.bench.features(run.state.answer, torch.from_numpy(samples)).detach().cpu()
    own = features.reshape(len(samples) * positions, -1)[torch.from_numpy(places * positions + rows % positions)]
    run.store.write_array(FEATURES, reduced(own.float().numpy()))
    run.store.write_array(FEATURES_INDEX, rows)


def reduced(features: Floats) -> Floats:
    """At most 50 numbers per row: the principal directions of the rows as they are.

    They are not centred first, so that angles between rows, which the paper's cosine distance sees, are kept.

    >>> rows = np.eye(3, 80, dtype=np.float32)
    >>> bool(np.allclose(reduced(rows) @ reduced(rows).T, np.eye(3), atol=1e-6))
    True
    """
    if features.shape[1] <= COMPONENTS or not np.isfinite(features).all():
        return features
    _, _, directions = np.linalg.svd(features, full_matrices=False)
    return features @ directions[:COMPONENTS].T
