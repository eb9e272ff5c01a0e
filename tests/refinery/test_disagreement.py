"""Where a round's models agree there is less to balance and to smooth ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mrtf_fedml.algorithms.mrtf import ComponentMemory
from mrtf_fedml.config import MrTFSettings
from mrtf_fedml.refinery.targets import smooth_targets
from mrtf_fedml.refinery.teachers import disagreement, predicted_classes, scale_by_disagreement

from . import oracle
from .cases import targets_of_logits
from .test_familiarity import rng_logits


@pytest.mark.parametrize("clients", [2, 3, 7])
def test_disagreement_agrees_with_a_second_reading(clients: int) -> None:
    logits = rng_logits(clients, clients=clients).numpy()
    differing, pairs = 0, 0
    for sample in range(logits.shape[1]):
        named = [int(np.argmax(logits[client, sample])) for client in range(clients)]
        for first in range(clients):
            for second in range(first):
                differing += named[first] != named[second]
                pairs += 1
    assert 0 < differing < pairs
    assert disagreement(predicted_classes(torch.from_numpy(logits))) == pytest.approx(differing / pairs, abs=1e-15)


def test_disagreement_of_equal_different_and_single_models() -> None:
    assert disagreement(torch.zeros(4, 9, dtype=torch.uint8)) == 0.0
    assert disagreement(torch.arange(5, dtype=torch.uint8)[:, None].expand(5, 9)) == 1.0
    assert disagreement(torch.zeros(1, 9, dtype=torch.uint8)) == 1.0, "a single model has no pair"


def test_smoothing_scaled_by_disagreement_equals_value_by_hand() -> None:
    # One model of three differs from the two others on one sample of two: D = 2/6, and of s = 0.75 the share
    # (1/3) / (1/2) is left. A loss of 0 keeps all of that: 1/2 of the last targets.
    smoothing = scale_by_disagreement(0.75, disagreement(torch.tensor([[0, 1], [0, 1], [0, 0]])), fade=0.5)
    assert smoothing == pytest.approx(1 / 2)
    now, before = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    torch.testing.assert_close(smooth_targets(now, before, 0.0, smoothing), torch.tensor([[0.5, 0.5]]))


@pytest.mark.parametrize("clients", [2, 3, 7])
def test_class_balance_fades_with_agreement_as_the_oracle_says(clients: int) -> None:
    logits = rng_logits(5, clients=clients)
    logits[1:] = 0.3 * logits[1:] + logits[:1]
    assert 0 < disagreement(predicted_classes(logits)) < 0.5
    given = targets_of_logits(logits, 0.4, cluster_refinery=False, class_balance=0.8).targets.numpy()
    switches = {"class_balance": 0.8, "self_teaching": False, "cluster_refinery": False}
    wanted = oracle.distillation_targets(logits.numpy(), None, None, 0.4, {**vars(MrTFSettings()), **switches})
    np.testing.assert_allclose(given, wanted.targets, atol=1e-10)


def test_prior_is_estimated_without_class_balance() -> None:
    logits = rng_logits(6)[:1].expand(3, -1, -1)
    memory = ComponentMemory({})
    targets_of_logits(logits, 0.4, memory, cluster_refinery=False, class_balance=0.8, class_prior="estimated")
    assert not torch.equal(memory["class_prior_balance"]["prior"], torch.full((5,), 0.2, dtype=torch.float64))


def smoothed_round(logits: torch.Tensor, previous: torch.Tensor, **changes: Any) -> torch.Tensor:
    memory = ComponentMemory({"refinery/temporal_smoothing/targets": previous})
    keys = {"cluster_refinery": False, "class_balance": 0.5, "target_smoothing": 0.75, **changes}
    return targets_of_logits(logits, 0.1, memory, **keys).targets


def test_agreeing_models_disable_balance_and_smoothing() -> None:
    logits = rng_logits(1, clients=3, samples=40, classes=3)
    alike = logits[:1].expand(3, -1, -1)
    before = torch.softmax(torch.arange(120.0).double().reshape(40, 3) % 7, dim=1)
    plain = smoothed_round(alike, before, class_balance=0.0, target_smoothing=0.0)
    assert torch.equal(smoothed_round(alike, before), plain)
    apart = disagreement(predicted_classes(logits))
    assert 0.5 < apart < 0.75
    balanced = smoothed_round(logits, before, target_smoothing=0.0)
    share = 0.75 * apart / 0.75 * (1 - 0.1 / np.log(3))
    torch.testing.assert_close(smoothed_round(logits, before), (1 - share) * balanced + share * before)
