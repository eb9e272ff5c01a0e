"""Where a round's models agree there is less to balance and to smooth (`balance_fade`, `smoothing_fade`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mrtf_fedml.refinery import distillation_targets
from mrtf_fedml.refinery.rectify import faded
from mrtf_fedml.refinery.refine import RefinedRound, refine
from mrtf_fedml.refinery.targets import smoothed_targets
from mrtf_fedml.refinery.teachers import disagreement, votes_of
from mrtf_fedml.settings import MrTFSettings

from . import oracle
from .test_trust import rng_logits

BALANCED = MrTFSettings(cluster_refinery=False, class_balance=0.8, balance_fade=1.0)


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
    assert disagreement(votes_of(torch.from_numpy(logits))) == pytest.approx(differing / pairs, abs=1e-15)


def test_disagreement_at_its_ends() -> None:
    assert disagreement(torch.zeros(4, 9, dtype=torch.uint8)) == 0.0
    assert disagreement(torch.arange(5, dtype=torch.uint8)[:, None].expand(5, 9)) == 1.0
    assert disagreement(torch.zeros(1, 9, dtype=torch.uint8)) == 1.0, "one alone agrees with nobody"


def test_smoothing_gives_way_by_hand() -> None:
    # One model of three differs from the two others on one sample of two: D = 2/6, and of s = 0.75 the share
    # (1/3) / (1/2) is left. A loss of 0 keeps all of that: 1/2 of the last targets.
    smoothing = faded(0.75, disagreement(torch.tensor([[0, 1], [0, 1], [0, 0]])), fade=0.5)
    assert smoothing == pytest.approx(1 / 2)
    now, before = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    torch.testing.assert_close(smoothed_targets(now, before, 0.0, smoothing), torch.tensor([[0.5, 0.5]]))


@pytest.mark.parametrize("unlike", [0.0, 0.3, 1.0])
def test_balance_gives_way_as_the_oracle_says(unlike: float) -> None:
    logits = rng_logits(5)
    given = distillation_targets(logits, None, None, 0.4, BALANCED, unlike=unlike).probabilities.numpy()
    switches = {"class_balance": 0.8 * unlike, "self_teaching": False, "cluster_refinery": False}
    settings = {**vars(MrTFSettings()), **switches}
    wanted = oracle.distillation_targets(logits.numpy(), None, None, 0.4, settings).probabilities
    np.testing.assert_allclose(given, wanted, atol=1e-10)


def test_the_shares_are_followed_even_where_nothing_is_balanced() -> None:
    settings = replace(BALANCED, class_shares="estimated")
    made = distillation_targets(rng_logits(6), None, None, 0.4, settings, unlike=0.0)
    assert made.shares is not None
    assert not torch.equal(made.shares, torch.full_like(made.shares, 0.2))


def refined(local: list[nn.Linear], previous: torch.Tensor, **switches: Any) -> RefinedRound:
    inputs = torch.from_numpy(np.random.default_rng(3).normal(size=(40, 4))).float()
    model = nn.Linear(4, 3)
    weights = [dict(one.state_dict()) for one in local]
    keys = {"cluster_refinery": False, "class_balance": 0.5, "target_smoothing": 0.75, "refine_steps": 2, **switches}
    return refine(
        model,
        weights[0],
        weights,
        weights[0],
        inputs,
        0.1,
        MrTFSettings(**keys),
        lambda one, features: (one(inputs).detach(), None),
        torch.Generator().manual_seed(0),
        previous_targets=previous,
    )


def test_a_round_whose_models_agree_neither_balances_nor_smooths() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        alike, others = [nn.Linear(4, 3)] * 3, [nn.Linear(4, 3) for _ in range(3)]
    before = torch.softmax(torch.arange(120.0).reshape(40, 3) % 7, dim=1)
    plain = refined(alike, before, class_balance=0.0, target_smoothing=0.0)
    assert torch.equal(refined(alike, before, smoothing_fade=0.5, balance_fade=0.5).targets, plain.targets)
    assert not torch.equal(refined(alike, before).targets, plain.targets), "without the setting it does both"
    wholly = refined(others, before)
    assert disagreement(wholly.votes) > 0.2
    assert torch.equal(refined(others, before, smoothing_fade=0.2, balance_fade=0.2).targets, wholly.targets)
    partly = refined(others, before, smoothing_fade=1.0, balance_fade=1.0)
    expected = refined(others, before, class_balance=0.5 * disagreement(wholly.votes), target_smoothing=0.0).targets
    kept = 0.75 * disagreement(wholly.votes) * (1 - 0.1 / np.log(3))
    torch.testing.assert_close(partly.targets, (1 - kept) * expected + kept * before)
