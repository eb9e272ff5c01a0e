"""Whether the server's samples are of one class or of several, by the predictions of the local models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from mrtf_fedml.algorithms.mrtf import ComponentMemory
from mrtf_fedml.algorithms.mrtf.target_transforms import ClassPriorBalance
from mrtf_fedml.refinery.class_prior import (
    balance_classes,
    floor_prior,
    mutual_information,
    predicted_class_frequencies,
    prediction_dependence,
    update_prior,
)
from mrtf_fedml.refinery.teachers import predicted_classes

from .cases import targets_of_logits
from .test_familiarity import rng_logits

ESTIMATED: dict[str, Any] = {"class_balance": 0.5, "class_prior": "estimated", "cluster_refinery": False}


def test_prediction_dependence_equals_value_by_hand() -> None:
    # P: (0, 2) 1/2, (1, 2) 1/4, (1, 3) 1/4, |P|^2 = 6/16. Alone: [1/2, 1/2], |p|^2 = 1/2, and [3/4, 1/4], 10/16.
    # P times the product, summed: 1/2 * 3/8 + 1/4 * 3/8 + 1/4 * 1/8 = 5/16, which is the product's own size.
    # So the distance is 6/16 - 10/16 + 5/16 = 1/16; chance has (1 - 6/16) / 100 of it; T^2 = (1/16 - 1/160) / (5/16).
    votes = torch.tensor([[0, 0, 1, 1], [2, 2, 2, 3]], dtype=torch.uint8).repeat(1, 25)
    assert prediction_dependence(votes) == pytest.approx(math.sqrt(0.18), abs=1e-12)
    assert prediction_dependence(votes[:, :4]) == 0.0, "four samples prove nothing"


@pytest.mark.parametrize("clients", [2, 3, 5])
def test_prediction_dependence_agrees_with_second_implementation(clients: int) -> None:
    votes = predicted_classes(rng_logits(clients, clients=clients, samples=200))
    votes[1] = torch.where(torch.arange(200) % 3 > 0, votes[0], votes[1])
    squares = []
    for first in range(clients):
        for second in range(first):
            table = np.zeros((5, 5))
            for one, other in zip(votes[first].tolist(), votes[second].tolist(), strict=True):
                table[one, other] += 1 / 200
            product = np.outer(table.sum(axis=1), table.sum(axis=0))
            beyond = ((table - product) ** 2).sum() - (1 - (table**2).sum()) / 200
            squares.append(max(0.0, beyond) / (product**2).sum())
    assert prediction_dependence(votes) == pytest.approx(math.sqrt(np.mean(squares)), abs=1e-12)
    assert prediction_dependence(votes) > 0.1


def test_prediction_dependence_of_equal_and_single_models() -> None:
    labels = torch.arange(6000)
    for classes in (1, 2, 3, 10):
        alike = (labels % classes).expand(4, -1)
        assert prediction_dependence(alike) == pytest.approx(math.sqrt(classes - 1), rel=0.02), classes
    # Models that never predict the same class, but separate the same samples.
    assert prediction_dependence(torch.stack([labels % 2, 2 + labels % 2])) == pytest.approx(1.0, abs=0.01)
    assert prediction_dependence(torch.zeros(1, 9, dtype=torch.uint8)) == 1.0, "a single model has no pair"


def test_mutual_information_equals_values_by_hand() -> None:
    # Of two samples: always [1/4, 3/4] has information 0; first one class, then the other, has log 2.
    parts = torch.tensor([[[0.25, 0.75], [0.25, 0.75]], [[1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    assert mutual_information([parts[:1]]) == pytest.approx(0.0, abs=1e-9)
    assert mutual_information([parts]) == pytest.approx(math.log(2) / 2, abs=1e-9)
    probabilities = rng_logits(2, samples=50).softmax(dim=-1)
    assert mutual_information([probabilities]) == mutual_information(probabilities.split(7, dim=1)), "to the last bit"


def test_update_prior_equals_values_by_hand() -> None:
    q = torch.tensor([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.2, 0.7, 0.1], [0.4, 0.3, 0.3]], dtype=torch.float64)
    assert predicted_class_frequencies(q).tolist() == [0.75, 0.25, 0.0]
    # (1 - 1/2) [.2, .3, .5] + 1/2 [.75, .25, 0]
    towards = update_prior(torch.tensor([0.2, 0.3, 0.5]), q, 0.5)
    np.testing.assert_allclose(towards.numpy(), [0.475, 0.275, 0.25], atol=1e-7)
    first = update_prior(None, q, 1.0)
    assert first.tolist() == [0.75, 0.25, 0.0]


def make_logits(
    classes: int, clear: float = 1.5, varying: float = 1.0, rounds: int = 5
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Labels of 300 samples, and in each round the logits [4, 300, 10] of four models of three classes each."""
    labels = np.random.default_rng(1).integers(0, classes, size=300)
    round_logits = []
    for t in range(rounds):
        rng = np.random.default_rng(10 + t)
        # Each model has the first class, so all of them can predict a server of that class only.
        own = np.stack([[0, *rng.choice(np.arange(1, 10), 2, replace=False)] for _ in range(4)])
        logits = varying * rng.normal(size=(4, 300, 10))
        for k, has in enumerate(own):
            logits[k][:, has] += [3.2, 3.1, 3.0]
            for c in range(classes):
                # A model predicts one of its own classes, always the same, for a class that it lacks.
                logits[k][labels == c, c if c in has else rng.choice(has)] += clear * varying
        round_logits.append(torch.from_numpy(logits))
    return torch.from_numpy(labels), round_logits


@pytest.fixture(autouse=True)
def full_balance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Balance in full, however much the models agree."""
    monkeypatch.setattr(ClassPriorBalance, "fade", 0.0)


def curve(labels: torch.Tensor, round_logits: list[torch.Tensor]) -> tuple[float, list[torch.Tensor]]:
    memory = ComponentMemory({})
    made = [targets_of_logits(logits, 0.5, memory, **ESTIMATED).targets for logits in round_logits]
    return float(np.mean([float((one.argmax(dim=1) == labels).double().mean()) for one in made])), made


def curves(
    labels: torch.Tensor, round_logits: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> tuple[tuple[float, list[torch.Tensor]], tuple[float, list[torch.Tensor]]]:
    """Without and with the correction for samples of one class."""
    with monkeypatch.context() as patch:
        patch.setattr(ClassPriorBalance, "single_class_fade", 0.0)
        without = curve(labels, round_logits)
    return without, curve(labels, round_logits)


def test_single_class_correction_raises_accuracy_on_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, round_logits = make_logits(classes=1)
    assert max(prediction_dependence(predicted_classes(one)) for one in round_logits) < 0.15
    (without, _), (corrected, _) = curves(labels, round_logits, monkeypatch)
    assert corrected > without + 0.1, (without, corrected)


def test_single_class_correction_changes_nothing_on_all_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, round_logits = make_logits(classes=10, clear=2.5)
    assert min(prediction_dependence(predicted_classes(one)) for one in round_logits) > 0.25
    (_, without), (_, corrected) = curves(labels, round_logits, monkeypatch)
    for one, other in zip(without, corrected, strict=True):
        assert torch.equal(one, other)


def test_untrained_models_do_not_look_like_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, round_logits = make_logits(classes=10, varying=0.02)
    assert max(prediction_dependence(predicted_classes(one)) for one in round_logits) < 0.25
    (_, without), (_, corrected) = curves(labels, round_logits, monkeypatch)
    for one, other in zip(without, corrected, strict=True):
        torch.testing.assert_close(one, other, atol=0.01, rtol=0)


def test_estimated_prior_of_one_class_is_the_predicted_frequencies() -> None:
    _, round_logits = make_logits(classes=1)
    plain = targets_of_logits(round_logits[0], 0.5, cluster_refinery=False).targets
    assert float(predicted_class_frequencies(plain).max()) > 0.6
    given = targets_of_logits(round_logits[0], 0.5, **ESTIMATED).targets
    prior = floor_prior(update_prior(None, plain, 1.0), 10)
    torch.testing.assert_close(given, balance_classes(plain, 0.5, prior))


def test_equal_prior_ignores_single_class_correction() -> None:
    _, round_logits = make_logits(classes=1)
    plain = targets_of_logits(round_logits[0], 0.5, cluster_refinery=False).targets
    given = targets_of_logits(round_logits[0], 0.5, **{**ESTIMATED, "class_prior": "equal"}).targets
    torch.testing.assert_close(given, balance_classes(plain, 0.5))
