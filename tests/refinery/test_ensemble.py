"""Eq. 10 and its parts: entropy, confidence weights, u_t, self teaching; and the balance of classes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mrtf_fedml.refinery.class_prior import balance_classes
from mrtf_fedml.refinery.ensemble import (
    add_self_teaching,
    average_probabilities,
    entropy,
    entropy_weights,
    local_weight,
)

from . import oracle


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(actual: torch.Tensor, expected: object, tolerance: float = 1e-12, where: str = "") -> None:
    np.testing.assert_allclose(actual.numpy(), np.asarray(expected), rtol=0, atol=tolerance, err_msg=where)


def test_entropy_by_hand() -> None:
    # A certain row has entropy 0 (0 log 0 = 0), a uniform one log C; [1/2, 1/4, 1/4] has 1.5 log 2.
    rows = tensor([[[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.25, 0.25]]])
    close(entropy(rows), [[0.0, math.log(3), 1.5 * math.log(2)]])


def test_two_clients_two_classes_by_hand() -> None:
    # Client 1 is certain, [1, 0]: entropy 0. Client 2 is uniform, [1/2, 1/2]: entropy log 2.
    # sigma([0, -log 2]) = [1, 1/2] / (3/2) = [2/3, 1/3].
    # Together: [2/3 + 1/3 * 1/2, 1/3 * 1/2] = [5/6, 1/6].
    rows = tensor([[[1.0, 0.0]], [[0.5, 0.5]]])
    weights = entropy_weights(entropy(rows))
    close(weights, [[2 / 3], [1 / 3]])
    close(average_probabilities(rows, weights), [[5 / 6, 1 / 6]])


def test_weights_are_a_softmax_over_clients_and_not_over_samples() -> None:
    # Sample 1: entropies 0 and log 3 -> [3/4, 1/4]. Sample 2: equal entropies -> [1/2, 1/2].
    entropies = tensor([[0.0, math.log(3)], [math.log(3), math.log(3)]])
    close(entropy_weights(entropies), [[0.75, 0.5], [0.25, 0.5]])


def test_entropies_and_weights_agree_with_the_oracle() -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        logits = rng.normal(size=(rng.integers(1, 7), rng.integers(1, 12), rng.integers(2, 9))) * 6
        probabilities = np.stack([oracle.softmax_rows(model) for model in logits])
        close(entropy(tensor(probabilities)), oracle.entropy(probabilities), where=f"seed {seed}")
        expected = oracle.confidence_weights(oracle.entropy(probabilities))
        close(entropy_weights(entropy(tensor(probabilities))), expected, where=f"seed {seed}")


def test_local_weight_by_hand() -> None:
    # u_t = 0.25 + 0.75 * loss / log C.
    for classes in (2, 4, 10, 100):
        chance, where = math.log(classes), f"{classes} classes"
        assert local_weight(0.0, classes) == 0.25, where
        assert local_weight(0.5 * chance, classes) == pytest.approx(0.625, abs=1e-12), where
        assert local_weight(chance, classes) == pytest.approx(1.0, abs=1e-12), where
        # 10 is beyond log C for each of these C: the globals' share must not become negative.
        assert local_weight(10.0, classes) == 1.0, where
        assert isinstance(local_weight(0.3, classes), float), where


def test_local_weight_is_held_from_below() -> None:
    assert local_weight(-0.5, 4) == 0.25


def test_local_weight_refuses_nan() -> None:
    with pytest.raises(ValueError, match="loss"):
        local_weight(float("nan"), 4)


def test_self_teaching_by_hand() -> None:
    # u = 1/2: 1/2 * [.8, .2] + 1/4 * ([.5, .5] + [.1, .9]) = [.4 + .15, .1 + .35] = [.55, .45].
    taught = add_self_teaching(tensor([[0.8, 0.2]]), tensor([[[0.5, 0.5]], [[0.1, 0.9]]]), 0.5)
    close(taught, [[0.55, 0.45]])
    # u = 1/4: 1/4 * [.8, .2] + 3/8 * [.6, 1.4] = [.2 + .225, .05 + .525] = [.425, .575].
    taught = add_self_teaching(tensor([[0.8, 0.2]]), tensor([[[0.5, 0.5]], [[0.1, 0.9]]]), 0.25)
    close(taught, [[0.425, 0.575]])


def test_local_weight_of_one_ignores_global_models() -> None:
    local = tensor([[0.8, 0.2], [0.3, 0.7]])
    close(add_self_teaching(local, tensor([[[0.5, 0.5]] * 2, [[0.1, 0.9]] * 2]), 1.0), local)


def test_self_teaching_weights_both_global_models_equally() -> None:
    local, globals_ = tensor([[0.8, 0.2]]), tensor([[[0.5, 0.5]], [[0.1, 0.9]]])
    close(add_self_teaching(local, globals_, 0.4), add_self_teaching(local, globals_.flip(0), 0.4))


def test_class_balance_by_hand() -> None:
    # Masses: E[q] = [.5, .25, .25]; roots: [.7071, .5, .5]. b = 1 divides by the masses: rows [1.2, .8, .8] / 2.8 and
    # [.8, 1.2, 1.2] / 3.2.
    q = tensor([[0.6, 0.2, 0.2], [0.4, 0.3, 0.3]])
    close(balance_classes(q, 1.0), [[1.2 / 2.8, 0.8 / 2.8, 0.8 / 2.8], [0.8 / 3.2, 1.2 / 3.2, 1.2 / 3.2]])
    root = math.sqrt(0.5)
    first, second = 0.6 / root + 0.8, 0.4 / root + 1.2
    close(
        balance_classes(q, 0.5),
        [[0.6 / root / first, 0.4 / first, 0.4 / first], [0.4 / root / second, 0.6 / second, 0.6 / second]],
    )


def test_zero_balance_changes_no_bit_and_empty_class_stays_empty() -> None:
    q = tensor([[0.9, 0.1, 0.0], [0.7, 0.3, 0.0]])
    assert torch.equal(balance_classes(q, 0.0), q)
    evened = balance_classes(q, 1.0)
    assert torch.equal(evened[:, 2], torch.zeros(2, dtype=torch.float64))
    close(evened.sum(dim=1), [1.0, 1.0])
    assert evened[:, 1].mean() > q[:, 1].mean(), "the class that was rare has gained"


def test_balance_of_equal_masses_changes_nothing() -> None:
    q = tensor([[0.7, 0.3], [0.3, 0.7]])
    close(balance_classes(q, 0.8), q)
