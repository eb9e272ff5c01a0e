"""Eq. 11 and 12: prototypes, cosine distances, re-assigned probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mrtf_fedml.refinery.clustering import cosine_distances, prototypes, reassign_by_prototypes

from . import oracle
from .cases import every_dtype

# Three points in the plane and how much of each belongs to two classes. By hand, Eq. 11:
#   v_0 = (1/2 (6, 0) + 1/2 (0, 8) + 0 (4, -3)) / (1/2 + 1/2)     = (3, 4),     |v_0| = 5
#   v_1 = (1/2 (6, 0) + 1/2 (0, 8) + 1 (4, -3)) / (1/2 + 1/2 + 1) = (3.5, 0.5), |v_1| = 5 / sqrt 2
POINTS = torch.tensor([[6.0, 0.0], [0.0, 8.0], [4.0, -3.0]], dtype=torch.float64)
SHARES = torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)
# and the cosines h.v / (|h| |v|), with |h| = 6, 8, 5:
#   v_0: 18 / 30 = 3/5,  32 / 40 = 4/5,  0
#   v_1: 21 / (30 / sqrt 2) = 7 sqrt 2 / 10,  4 / (40 / sqrt 2) = sqrt 2 / 10,
#        12.5 / (25 / sqrt 2) = sqrt 2 / 2
ROOT = math.sqrt(2)
COSINES = np.array([[3 / 5, 7 * ROOT / 10], [4 / 5, ROOT / 10], [0.0, ROOT / 2]])


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(actual: torch.Tensor, expected: object, tolerance: float = 1e-10, where: str = "") -> None:
    np.testing.assert_allclose(actual.numpy(), np.asarray(expected), rtol=0, atol=tolerance, err_msg=where)


def test_prototypes_by_hand() -> None:
    close(prototypes(SHARES, POINTS), [[3.0, 4.0], [3.5, 0.5]])


def test_cosine_distances_by_hand() -> None:
    close(cosine_distances(POINTS, tensor([[3.0, 4.0], [3.5, 0.5]])), 1 - COSINES)


def test_reassignment_by_hand() -> None:
    # Of two classes the softmax is a logistic function: q_0 = 1 / (1 + exp(-tau (D_1 - D_0))).
    tau = 4.0
    first = 1 / (1 + np.exp(-tau * (COSINES[:, 0] - COSINES[:, 1])))
    expected = np.stack([first, 1 - first], axis=1)
    close(reassign_by_prototypes(SHARES, POINTS, tau), expected)


def test_opposite_and_parallel_vectors() -> None:
    # The cosine distance runs from 0 (same direction) over 1 (right angle) to 2 (opposite).
    close(
        cosine_distances(tensor([[2.0, 0.0]]), tensor([[5.0, 0.0], [0.0, 1.0], [-3.0, 0.0]])),
        [[0.0, 1.0, 2.0]],
    )


def test_agrees_with_the_oracle() -> None:
    for seed in range(5):
        rng, where = np.random.default_rng(seed), f"seed {seed}"
        samples, classes, width = rng.integers(1, 20), rng.integers(2, 9), rng.integers(1, 6)
        shares = oracle.softmax_rows(rng.normal(size=(samples, classes)) * 3)
        features = rng.normal(size=(samples, width))
        centres = oracle.prototypes(shares, features)
        close(prototypes(tensor(shares), tensor(features)), centres, where=where)
        distances = cosine_distances(tensor(features), tensor(centres))
        close(distances, oracle.cosine_distances(features, centres), where=where)
        tau = float(rng.uniform(0.5, 10))
        rows = reassign_by_prototypes(tensor(shares), tensor(features), tau)
        close(rows, oracle.reassigned_probabilities(shares, features, tau, 1), where=where)


def test_class_without_mass_has_zero_prototype_and_cosine() -> None:
    shares = tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    centres = prototypes(shares, POINTS)
    assert torch.equal(centres[2], torch.zeros(2, dtype=torch.float64))
    close(cosine_distances(POINTS, centres)[:, 2], np.ones(3))
    rows = reassign_by_prototypes(shares, POINTS, 4.0)
    assert torch.isfinite(rows).all()
    close(rows, oracle.reassigned_probabilities(shares, POINTS, 4.0, 1))


def test_class_with_almost_no_mass_is_not_empty() -> None:
    # Both shares shrink together, so Eq. 11 gives the mean (3, 4) however small they are.
    shares = tensor([[1 - 1e-20, 1e-20], [1 - 1e-20, 1e-20], [1.0, 0.0]])
    close(prototypes(shares, POINTS)[1], [3.0, 4.0])


def test_all_zero_features() -> None:
    features = torch.zeros(3, 4, dtype=torch.float64)
    close(cosine_distances(features, prototypes(SHARES, features)), np.ones((3, 2)))
    # Every distance is 1, hence no class is nearer than another.
    close(reassign_by_prototypes(SHARES, features, 4.0), np.full((3, 2), 0.5))


def test_single_zero_feature_vector_gets_a_uniform_row() -> None:
    features = torch.cat([POINTS[:2], torch.zeros(1, 2, dtype=torch.float64)])
    rows = reassign_by_prototypes(SHARES, features, 4.0)
    close(rows, oracle.reassigned_probabilities(SHARES, features, 4.0, 1))
    close(rows[2], [0.5, 0.5])


@every_dtype
def test_clustering_is_independent_of_feature_length(dtype: torch.dtype) -> None:
    # A cosine has no scale: short vectors are not zero vectors.
    shares, points = SHARES.to(dtype), POINTS.to(dtype)
    plain = reassign_by_prototypes(shares, points, 4.0)
    for factor in (1e-30, 1e-12, 1e12, 1e30):
        scaled = reassign_by_prototypes(shares, points * factor, 4.0)
        close(scaled.double(), plain.double(), 1e-6, f"factor {factor}")


def test_inputs_are_left_alone() -> None:
    shares, points = SHARES.clone(), POINTS.clone()
    reassign_by_prototypes(shares, points, 4.0)
    assert torch.equal(shares, SHARES)
    assert torch.equal(points, POINTS)


def test_wide_features_are_taken_in_parts_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(50, 6, generator=generator)
    start = torch.randn(50, 4, generator=generator, dtype=torch.float64).softmax(dim=1)
    whole = reassign_by_prototypes(start, features, 4.0)
    assert torch.equal(whole, reassign_by_prototypes(start, features.double(), 4.0))
    monkeypatch.setattr("mrtf_fedml.refinery.clustering.BLOCK_BYTES", 8 * 6 * 7)
    torch.testing.assert_close(reassign_by_prototypes(start, features, 4.0), whole)
