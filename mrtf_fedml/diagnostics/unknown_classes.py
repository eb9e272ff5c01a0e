"""Samples of the server that look like no sample of any client, found one by one: they may be of an unknown class.

The score of a sample is the distance to its third nearest neighbour among the clients' samples, by the angle between
centred samples. Half of the clients' samples are neighbours, the other half shows which scores are usual: its fraction
with a score at least as large is a p-value (conformal; Bates et al. 2023). Benjamini and Hochberg's procedure (1995)
selects so many samples that at most `FALSE_FRACTION` of them are expected to be of a client's class.

It needs samples of both sides, which only a simulation has. docs/lab/estimates.md compares scores.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .shift import MIN_SAMPLES, Rows, project, subsample

#: Of the samples that are decided to be unknown, this fraction at most is expected to be of a client's class.
FALSE_FRACTION = 0.3
#: Two neighbours may be near by chance, such as duplicates and wrong labels.
_NEIGHBOURS = 3
#: Rows of the server's samples whose distances are computed at once.
_BLOCK = 2048


def find_unknown_samples(clients: Tensor, server: Tensor) -> Tensor | None:
    """Which of the server's samples [M, ...] look like none of the clients' [N, ...], [M].

    None for too few samples or samples of indices.
    """
    if min(len(clients) // 2, len(server)) < MIN_SAMPLES or not clients.is_floating_point():
        return None
    usual, scores = novelty_scores(clients, server)
    p_values = (1 + len(usual) - np.searchsorted(np.sort(usual), scores, side="left")) / (len(usual) + 1)
    return torch.from_numpy(select_discoveries(p_values, FALSE_FRACTION))


def novelty_scores(clients: Tensor, server: Tensor) -> tuple[Rows, Rows]:
    """The distances of half of the clients' samples, and of all of the server's [M], to the clients' other half."""
    rows = subsample(clients.cpu())
    reference, queries = np.array_split(np.random.default_rng(0).permutation(len(rows)), 2)
    mean, deviation = rows[reference].mean(axis=0), rows[reference].std(axis=0)
    # Pixels have one scale.
    scale = np.where(deviation > 1e-6, deviation, 1.0) if clients.ndim == 2 else 1.0
    neighbours = _directions((rows[reference] - mean) / scale)
    blocks = (block.flatten(1).double().cpu().numpy() for block in server.split(_BLOCK))
    scores = [_distances(_directions((block - mean) / scale), neighbours) for block in blocks]
    return _distances(_directions((rows[queries] - mean) / scale), neighbours), np.concatenate(scores)


def select_discoveries(p_values: Rows, false_fraction: float) -> npt.NDArray[np.bool_]:
    """Benjamini and Hochberg's selection of hypotheses to reject, [M].

    >>> select_discoveries(np.array([0.01, 0.5, 0.02, 0.9]), 0.1).tolist()
    [True, False, True, False]
    """
    ordered = np.sort(p_values)
    passing = np.flatnonzero(ordered <= false_fraction * np.arange(1, len(ordered) + 1) / len(ordered))
    largest = ordered[passing[-1]] if len(passing) else -1.0
    return np.asarray(p_values <= largest)


def _directions(rows: Rows) -> Rows:
    projected = project(rows)
    return np.asarray(projected / np.maximum(np.linalg.norm(projected, axis=1, keepdims=True), 1e-12))


def _distances(directions: Rows, neighbours: Rows) -> Rows:
    cosines = directions @ neighbours.T
    return 1.0 - np.partition(cosines, -_NEIGHBOURS, axis=1)[:, -_NEIGHBOURS]
