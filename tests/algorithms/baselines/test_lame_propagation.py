"""LAME's correction, against numbers by hand and a dense reading in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mrtf_fedml.algorithms.baselines.lame import nearest_neighbours, propagate_labels

Array = NDArray[np.float64]


def dense_lame(probabilities: Array, features: Array, neighbours: int, strength: float, steps: int) -> Array:
    """The same with the whole M x M matrix of who is whose neighbour, one sample after another."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    samples = len(unit)
    affinity = np.zeros((samples, samples))
    for i in range(samples):
        distances = [np.linalg.norm(unit[i] - unit[j]) if j != i else math.inf for j in range(samples)]
        affinity[i, np.argsort(distances)[:neighbours]] = 1.0
    current = probabilities
    for _ in range(steps):
        scores = np.log(probabilities) + strength * affinity @ current
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        current = powers / powers.sum(axis=1, keepdims=True)
    return np.asarray(current)


def test_two_neighbours_by_hand() -> None:
    # Each is the other's only neighbour. One step: z(x) is proportional to q(c|x) exp(q(c|x')).
    probabilities = torch.tensor([[0.8, 0.2], [0.4, 0.6]], dtype=torch.float64)
    features = torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=torch.float64)
    first, second = 0.8 * math.exp(0.4), 0.2 * math.exp(0.6)
    third, fourth = 0.4 * math.exp(0.8), 0.6 * math.exp(0.2)
    expected = [[first / (first + second), second / (first + second)], [third / (third + fourth)] * 2]
    expected[1][1] = fourth / (third + fourth)
    actual = propagate_labels(probabilities, features, neighbours=1, steps=1)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=0, atol=1e-12)


def test_agrees_with_a_dense_reading_whatever_the_block() -> None:
    generator = np.random.default_rng(1)
    for samples, classes, neighbours, strength, steps in [(40, 3, 5, 1.0, 100), (23, 6, 1, 0.4, 7), (9, 2, 8, 2.0, 3)]:
        probabilities = generator.dirichlet(np.ones(classes), samples)
        features = generator.normal(size=(samples, 4))
        expected = dense_lame(probabilities, features, neighbours, strength, steps)
        for block in (1, 7, samples + 1):
            actual = propagate_labels(
                torch.from_numpy(probabilities),
                torch.from_numpy(features),
                neighbours=neighbours,
                strength=strength,
                steps=steps,
                block=block,
            )
            # We stop when nothing moves by more than 1e-6.
            np.testing.assert_allclose(actual.numpy(), expected, rtol=0, atol=1e-4)


def test_propagate_labels_without_strength_or_neighbours_changes_nothing() -> None:
    probabilities = torch.tensor([[0.7, 0.3], [0.2, 0.8]])
    features = torch.eye(2)
    assert torch.equal(propagate_labels(probabilities, features, strength=0.0), probabilities)
    assert torch.equal(propagate_labels(probabilities[:1], features[:1]), probabilities[:1])


def test_propagate_labels_gives_uncertain_samples_the_class_of_their_cluster() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[4.0, 0.0], [0.0, 4.0]]).repeat_interleave(30, dim=0)
    features = centres + torch.randn(60, 2, generator=generator) / 4
    labels = torch.arange(2).repeat_interleave(30)
    probabilities = torch.full((60, 2), 0.25).scatter(1, labels[:, None], 0.75)
    probabilities[::6] = probabilities[::6].flip(1)
    corrected = propagate_labels(probabilities, features)
    assert (probabilities.argmax(dim=1) == labels).float().mean() < 0.85
    assert torch.equal(corrected.argmax(dim=1), labels)


def test_extreme_features_and_sure_predictions_stay_finite() -> None:
    probabilities = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    features = torch.tensor([[0.0, 0.0], [1e30, 1e30], [1e-30, -1e-30]])
    corrected = propagate_labels(probabilities, features)
    assert torch.isfinite(corrected).all()
    torch.testing.assert_close(corrected.sum(dim=1), torch.ones(3))
    assert nearest_neighbours(features, 9).shape == (3, 2)


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=r"same M samples, not \(3, 2\) and \(4, 2\)"):
        propagate_labels(torch.full((3, 2), 0.5), torch.ones(4, 2))
