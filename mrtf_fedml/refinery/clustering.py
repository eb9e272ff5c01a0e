"""Clustered label refinery (Sect. 4.3): samples with similar features get similar targets.

Symbols: M samples of the server, C classes, D features; h(x) the aggregated model's features, q_c(x) the targets,
v_c the prototype of class c, D_f the distance (the paper's is the cosine distance), tau the temperature.

Written as matrix products: nothing of size M x C x D is made.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: Bytes that one block of the features may take as doubles; a few copies of it are made on the way.
BLOCK_BYTES = 64 * 2**20


def prototypes(probabilities: Tensor, features: Tensor) -> Tensor:
    """Eq. 11: v_c = E[q_c(x) h(x)] / E[q_c(x)].

    Args:
        probabilities: q, [M, C].
        features: h, [M, D].

    Returns:
        v, [C, D]. A class without mass has the zero vector, whose cosine with any vector is 0.
    """
    mass = probabilities.sum(dim=0).unsqueeze(1)
    rows = _rows_per_block(features)
    weighted, *others = (
        block.T @ own.to(block) for block, own in zip(probabilities.split(rows), features.split(rows), strict=True)
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


def reassign_by_prototypes(
    probabilities: Tensor,
    features: Tensor,
    temperature: float,
    distances: Callable[[Tensor, Tensor], Tensor] = cosine_distances,
) -> Tensor:
    """Eq. 12: q(x) = softmax over c of -tau * D_f(h(x), v_c), with v of Eq. 11.

    Args:
        probabilities: the targets so far, [M, C].
        features: h, [M, D], in any precision: they are converted to that of the targets one block at a time.
        temperature: tau.
        distances: D_f, from features and prototypes to [M, C].

    Returns:
        the new targets, [M, C].
    """
    centres = prototypes(probabilities, features)
    blocks = [distances(block.to(centres), centres) for block in features.split(_rows_per_block(features))]
    return torch.softmax(-temperature * torch.cat(blocks), dim=-1)


def unit_rows(rows: Tensor) -> Tensor:
    """Each row divided by its length; a zero row stays zero."""
    # By the largest entry first: squares of very large or very small features leave the range of floats.
    largest = rows.abs().amax(dim=1, keepdim=True)
    scaled = rows / largest.masked_fill(largest == 0, 1.0)
    length = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return scaled / length.masked_fill(length == 0, 1.0)


def _rows_per_block(features: Tensor) -> int:
    """Features can be wide: those of a convolutional net would take gigabytes as doubles, all at once."""
    return max(1, BLOCK_BYTES // (8 * features.shape[1]))
