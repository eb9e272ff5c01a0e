"""A last transductive pass: samples that lie together in feature space agree on their labels, and no weight changes.

Boudiaf, Mueller, Ben Ayed, Bertinetto: "Parameter-free Online Test-time Adaptation", CVPR 2022 (LAME).

Symbols: M samples, C classes, D features; q(x) the predictions to be corrected, z(x) the corrected ones, N(x) the k
samples whose unit features are nearest to that of x.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .clusters import unit_rows

#: No prediction is so sure that its neighbours cannot speak: the least probability before the logarithm.
LEAST_PROBABILITY = 1e-10
#: No row of z moves by more than this: the fixed point is reached.
STILL = 1e-6


def propagated(
    probabilities: Tensor,
    features: Tensor,
    *,
    neighbours: int = 5,
    strength: float = 1.0,
    steps: int = 100,
    block: int = 256,
) -> Tensor:
    """z(x) <- softmax over c of log q(c|x) + s * sum over x' in N(x) of z(c|x'), until nothing moves; z = q at first.

    It lowers sum_x KL(z(x), q(x)) - s sum_x sum over x' in N(x) of z(x)·z(x'): stay near the predictions, and agree
    with the neighbours. Only the order of classes within a neighbourhood can change; a sample alone keeps its q.

    Args:
        probabilities: q, [M, C].
        features: h, [M, D].
        neighbours: k; at most M - 1 are taken.
        strength: s, the weight of one neighbour's say. 1 is LAME's; 0 changes nothing.
        steps: at most so many.
        block: rows of the M x M similarities that are in memory at once: block * M floats.

    Returns:
        z, [M, C], in the dtype of `probabilities`; rows sum to one.

    >>> q = torch.tensor([[0.6, 0.4], [0.1, 0.9], [0.1, 0.9]])
    >>> together = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1]])
    >>> propagated(q, together, neighbours=2).argmax(dim=1)
    tensor([1, 1, 1])
    """
    if probabilities.dim() != 2 or features.dim() != 2 or len(probabilities) != len(features):
        raise ValueError(
            f"probabilities [M, C] and features [M, D] must be of the same M samples, not "
            f"{tuple(probabilities.shape)} and {tuple(features.shape)}"
        )
    near = nearest(features, neighbours, block)
    if strength == 0.0 or near.shape[1] == 0:
        return probabilities
    own = probabilities.double().clamp_min(LEAST_PROBABILITY).log()
    current = torch.softmax(own, dim=1)
    for _ in range(steps):
        said = torch.zeros_like(current)
        # One neighbour after the other: [M, k, C] would be k times as large.
        for column in near.T:
            said += current[column]
        moved = torch.softmax(own + strength * said, dim=1)
        still = bool((moved - current).abs().max() <= STILL)
        current = moved
        if still:
            break
    return current.to(probabilities.dtype)


def nearest(features: Tensor, neighbours: int, block: int = 256) -> Tensor:
    """N(x): for each sample the indices of the `neighbours` others whose features have the largest cosine with its own.

    Between unit vectors the largest cosine is the least Euclidean distance.

    Args:
        features: h, [M, D]; a zero vector has cosine 0 with every other.
        neighbours: k; at most M - 1 are taken.
        block: rows of similarities in memory at once.

    Returns:
        indices, [M, k], the nearest first.

    >>> nearest(torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.1]]), neighbours=1).T
    tensor([[2, 2, 0]])
    """
    samples = len(features)
    unit = unit_rows(features)
    found = []
    for rows in torch.arange(samples, device=features.device).split(block):
        cosines = unit[rows] @ unit.T
        cosines[torch.arange(len(rows), device=rows.device), rows] = -torch.inf
        found.append(cosines.topk(min(neighbours, samples - 1), dim=1).indices)
    return torch.cat(found)
