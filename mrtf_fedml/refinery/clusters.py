"""Clustered label refinery (Sect. 4.3): samples that lie together in feature space get labels alike.

Symbols: M samples of the server, C classes, D features; h(x) the aggregated model's features, q_c(x) the targets,
v_c the prototype of class c, D_f the distance (the paper's is the cosine distance), tau the temperature.

Written as products of matrices: nothing of size M x C x D is ever made.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .stored_rows import StoredRows


def prototypes(probabilities: Tensor, features: Tensor | StoredRows) -> Tensor:
    """Eq. 11: v_c = E[q_c(x) h(x)] / E[q_c(x)].

    Args:
        probabilities: q, [M, C].
        features: h, [M, D].

    Returns:
        v, [C, D]. A class with no mass has the zero vector, whose cosine with anything is 0.
    """
    mass = probabilities.sum(dim=0).unsqueeze(1)
    rows = _rows_at_once(features)
    weighted, *others = (
        part.T @ own.to(part) for part, own in zip(probabilities.split(rows), features.split(rows), strict=True)
    )
    for other in others:
        weighted += other
    return torch.where(mass > 0, weighted / mass.masked_fill(mass <= 0, 1.0), torch.zeros_like(weighted))


def cosine_distances(features: Tensor, prototypes: Tensor) -> Tensor:
    """D_f(h(x), v_c) = 1 - h(x)·v_c / (|h(x)| |v_c|); a zero vector has cosine 0.

    Args:
        features: h, [M, D].
        prototypes: v, [C, D].

    Returns:
        D_f, [M, C], in [0, 2].
    """
    return 1.0 - unit_rows(features) @ unit_rows(prototypes).T


def squared_distances(features: Tensor, prototypes: Tensor) -> Tensor:
    """D_f(h(x), v_c) = |h(x)/|h(x)| - v_c/|v_c||^2, as in the authors' program: twice the cosine distance.

    Args:
        features: h, [M, D]; a zero vector is as far from every prototype.
        prototypes: v, [C, D].

    Returns:
        D_f, [M, C], in [0, 4]; infinite for a class without a prototype, so that no sample is given to it.
    """
    cosines = unit_rows(features) @ unit_rows(prototypes).T
    given = features.any(dim=1, keepdim=True).to(cosines)
    distances = given + 1.0 - 2.0 * cosines
    return distances.masked_fill(~prototypes.any(dim=1), torch.inf)


#: D_f, by the name that settings give it.
DISTANCES = {"cosine": cosine_distances, "squared_euclidean": squared_distances}


def reassigned_probabilities(
    probabilities: Tensor, features: Tensor | StoredRows, temperature: float, steps: int, distance: str = "cosine"
) -> Tensor:
    """Eq. 12: q(x) = softmax over c of -tau * D_f(h(x), v_c), with Eq. 11 before it, `steps` times.

    Args:
        probabilities: the targets so far, [M, C].
        features: h, [M, D], in any precision: they are brought to that of the targets a part at a time.
        temperature: tau.
        steps: how often the two equations are iterated.
        distance: D_f, one of `DISTANCES`.

    Returns:
        the new targets, [M, C].
    """
    for _ in range(steps):
        centres = prototypes(probabilities, features)
        distances = torch.cat(
            [DISTANCES[distance](part.to(centres), centres) for part in features.split(_rows_at_once(features))]
        )
        probabilities = torch.softmax(-temperature * distances, dim=-1)
    return probabilities


#: What a part of the features may take as doubles; a few copies of it are made on the way.
PART_BYTES = 64 * 2**20


def _rows_at_once(features: Tensor | StoredRows) -> int:
    """Features may be wide: those of a convolutional net would take gigabytes as doubles, all at once."""
    return max(1, PART_BYTES // (8 * features.shape[1]))


def unit_rows(rows: Tensor) -> Tensor:
    """Each row divided by its length; a zero row stays zero."""
    # By the largest entry first: squares of very large or very small features leave the range of floats.
    largest = rows.abs().amax(dim=1, keepdim=True)
    scaled = rows / largest.masked_fill(largest == 0, 1.0)
    length = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return scaled / length.masked_fill(length == 0, 1.0)
