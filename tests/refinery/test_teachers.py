"""Eq. 3, 4, 6 and 7: from logits to one teacher."""

from __future__ import annotations

import math

import numpy as np
import torch

from mrtf_fedml.refinery.ensemble import average_logits, average_probabilities
from mrtf_fedml.refinery.teachers import normalized_probabilities

from . import oracle
from .cases import every_dtype

FLOAT64 = torch.float64


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=FLOAT64)


def close(actual: torch.Tensor, expected: object, tolerance: float = 1e-10, where: str = "") -> None:
    np.testing.assert_allclose(actual.numpy(), np.asarray(expected), rtol=0, atol=tolerance, err_msg=where)


def test_normalisation_by_hand() -> None:
    # The values 3, -3, 3, -3 have mean 0 and population std 3 (the sample's would be sqrt(12)).
    # Eq. 6 with tau = 2: sigma(2 * [1, -1]) = [1, e^-4] / (1 + e^-4).
    sure = 1 / (1 + math.exp(-4))
    close(normalized_probabilities(tensor([[3.0, -3.0], [3.0, -3.0]]), 2.0), [[sure, 1 - sure]] * 2)


def test_std_is_over_all_classes_and_all_samples_together() -> None:
    # Values 2, 0, 0, -2: mean 0, std sqrt(8 / 4) = sqrt(2). A std a sample would be 1 in both rows and give
    # them other sharpness: sigma(tau * [2, 0]) instead of sigma(tau * [sqrt 2, 0]).
    sure = 1 / (1 + math.exp(-math.sqrt(2)))
    close(normalized_probabilities(tensor([[2.0, 0.0], [0.0, -2.0]]), 1.0), [[sure, 1 - sure]] * 2)


def test_std_subtracts_the_mean_but_the_logits_keep_theirs() -> None:
    # Logits 10 and 12: std 1, so sigma([10, 12]) and not sigma([10, 12] / 11).
    close(normalized_probabilities(tensor([[10.0, 12.0]]), 1.0), oracle.softmax_rows([[10.0, 12.0]]))


def test_logits_are_normalized_by_the_std_of_each_model() -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(4, 9, 5)) * np.array([0.01, 1, 10, 300]).reshape(4, 1, 1)
    expected = [oracle.normalised_probabilities(model, 4.0) for model in logits]
    close(normalized_probabilities(tensor(logits), 4.0), expected)
    close(normalized_probabilities(tensor(logits[2]), 4.0), expected[2])


@every_dtype
def test_magnitude_does_not_matter(dtype: torch.dtype) -> None:
    logits = torch.tensor(np.random.default_rng(4).normal(size=(3, 12, 6)), dtype=dtype)
    plain = normalized_probabilities(logits, 4.0).double()
    for factor in (100.0, 0.01, 1e30, 1e-30):
        close(normalized_probabilities(logits * factor, 4.0).double(), plain, 1e-6, f"factor {factor}")


@every_dtype
def test_constant_logits_give_uniform_rows(dtype: torch.dtype) -> None:
    for constant in (0.0, 0.1, -7.3, 1e30, 1e-30):
        rows = normalized_probabilities(torch.full((7, 5), constant, dtype=dtype), 4.0)
        close(rows.double(), np.full((7, 5), 0.2), 1e-7, f"logits {constant}")


def test_constant_model_does_not_change_the_others() -> None:
    logits = np.random.default_rng(5).normal(size=(3, 4, 3))
    logits[1] = 2.5
    close(
        normalized_probabilities(tensor(logits), 4.0),
        [oracle.normalised_probabilities(model, 4.0) for model in logits],
    )


def test_average_of_the_papers_example() -> None:
    # Sect. 4.2: p_1 = [.5, .5, 0, 0] and p_2 = [.5, 0, .5, 0], uniform weights.
    priors = tensor([[[0.5, 0.5, 0.0, 0.0]], [[0.5, 0.0, 0.5, 0.0]]])
    close(average_probabilities(priors, tensor([0.5, 0.5])), [[0.5, 0.25, 0.25, 0.0]])


def test_weights_are_divided_by_their_sum() -> None:
    # Weights 3 and 1 are 3/4 and 1/4: [.75 * 1 + .25 * 0, .75 * 0 + .25 * 1].
    rows = tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    close(average_probabilities(rows, tensor([3.0, 1.0])), [[0.75, 0.25]])
    # Of logits [4, 0] and [0, 8] the mean is [3, 2]; sigma([3, 2]) = [e, 1] / (e + 1).
    mean = average_logits(tensor([[[4.0, 0.0]], [[0.0, 8.0]]]), tensor([3.0, 1.0]))
    close(mean, [[math.e / (math.e + 1), 1 / (math.e + 1)]])


def test_weights_may_differ_between_samples() -> None:
    rows = tensor([[[1.0, 0.0]] * 2, [[0.0, 1.0]] * 2])
    weights = tensor([[1.0, 1.0], [1.0, 3.0]])
    close(average_probabilities(rows, weights), [[0.5, 0.5], [0.25, 0.75]])


def test_averages_agree_with_the_oracle() -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        clients, samples, classes = rng.integers(1, 6), rng.integers(1, 9), rng.integers(2, 7)
        logits = rng.normal(size=(clients, samples, classes)) * 5
        probabilities = np.stack([oracle.softmax_rows(model) for model in logits])
        for shape in ((clients,), (clients, samples)):
            weights, where = rng.uniform(0.1, 3, shape), f"seed {seed}, weights of {shape}"
            averaged = average_probabilities(tensor(probabilities), tensor(weights))
            close(averaged, oracle.average_probabilities(probabilities, weights), where=where)
            averaged = average_logits(tensor(logits), tensor(weights))
            close(averaged, oracle.average_logits(logits, weights), where=where)


def test_client_of_weight_zero_is_ignored() -> None:
    logits = tensor(np.random.default_rng(6).normal(size=(2, 3, 4)))
    weights = tensor([0.0, 2.0])
    close(average_logits(logits, weights), torch.softmax(logits[1], -1))
    close(average_probabilities(torch.softmax(logits, -1), weights), torch.softmax(logits[1], -1))
