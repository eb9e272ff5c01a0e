"""What the server makes of votes that its clients have weighed by its classes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from mrtf_fedml.algorithms import ClientUpdate, MrTF
from mrtf_fedml.algorithms.judging import CLASSES, sent_candidates
from mrtf_fedml.algorithms.verdict import Verdict
from mrtf_fedml.algorithms.votes import VOTES
from mrtf_fedml.refinery.shares import named_shares

from .test_answers import judged_round
from .test_server_rules import TARGETS, settings

Vote = tuple[float, ...]


def verdict(*votes: Vote, before: list[list[list[float]]] | None = None, answer: str = "refined") -> Verdict:
    updates = [ClientUpdate(k, 1, {}, None, {VOTES: torch.tensor(one)}) for k, one in enumerate(votes)]
    return Verdict.after(before or [], updates, answer)


def test_the_estimate_is_of_the_weighed_votes_and_the_plain_one_stands_beside_it() -> None:
    # A third of the clients' samples are named as the server's are: its classes are others.
    told = verdict((50, 80, 100, 20, 40, 50, 30), (30, 90, 100, 10, 10, 10, 40)).estimate()
    assert told["estimated_accuracy"] == pytest.approx(50 / 60)
    assert told["estimated_unweighed"] == pytest.approx(170 / 200)
    assert told["estimated_unweighed_error"] == pytest.approx(math.sqrt((5**2 + 5**2) * 2) / 200)
    # Each is 5 / 3 of a hit off, and two of such weights are 60^2 / (50^2 + 10^2) = 18 / 13 clients.
    by_chance = math.sqrt(2 * (5 / 3) ** 2 * (18 / 13) / (5 / 13)) / 60
    doubt = (1 - 0.85) * (50 / 60 - 0.85)
    assert told["estimated_error"] == pytest.approx(math.hypot(by_chance, doubt))


def test_halfway_between_the_clients_classes_and_others() -> None:
    # Seven of eight are named alike: half of the way, and half of either error.
    votes = [(50.0, 80.0, 100.0), (30.0, 90.0, 100.0)]
    weighed = [(20.0, 40.0, 50.0), (10.0, 10.0, 10.0)]
    told = verdict(*[(*one, *other, 87.5) for one, other in zip(votes, weighed, strict=True)]).estimate()
    assert told["estimated_accuracy"] == pytest.approx((50 / 60 + 0.85) / 2)
    plain = math.sqrt((5**2 + 5**2) * 2) / 200
    other = math.sqrt(2 * (5 / 3) ** 2 * (18 / 13) / (5 / 13)) / 60
    doubt = (1 - 0.85) * (50 / 60 - 0.85) / 2
    assert told["estimated_error"] == pytest.approx(math.hypot((plain + other) / 2, doubt))


@pytest.mark.parametrize("alike", [10.0, 14.0])
def test_samples_that_are_named_as_the_servers_are_give_exactly_the_plain_numbers(alike: float) -> None:
    votes = [(5.0, 8.0, 10.0), (3.0, 9.0, 10.0), (6.0, 6.0, 10.0)]
    plain = verdict(*votes).estimate()
    weighed = verdict(*[(*one, 1.0, 5.0, 5.0, alike) for one in votes]).estimate()
    assert {key: weighed[key] for key in plain} == plain


def test_few_clients_with_the_servers_classes_are_told_by_the_error() -> None:
    alone = verdict((50, 80, 100, 20, 40, 50, 0), (30, 90, 100, 0, 0, 0, 0)).estimate()
    assert alone["estimated_accuracy"] == pytest.approx(0.8)
    assert alone["estimated_error"] == 1.0, "one client has no spread"
    hardly = verdict(*[(50, 80, 100, 2e-4, 4e-4, 5e-4, 0)] * 9).estimate()
    assert hardly["estimated_accuracy"] == pytest.approx(0.8)
    assert hardly["estimated_error"] == pytest.approx(1.0, abs=0.01), "no sample's weight, however well they agree"
    nobody = verdict((50, 80, 100, 0, 0, 0, 0), (30, 90, 100, 0, 0, 0, 0)).estimate()
    assert (nobody["estimated_accuracy"], nobody["estimated_error"]) == (0.85, 1.0)


def test_a_model_that_names_one_class_always_is_not_believed() -> None:
    # It finds all samples of the class that it names, which are a tenth of the clients'; it names theirs so too.
    told = verdict(*[(10, 10, 100, 10, 10, 10, 100)] * 9).estimate()
    assert told["estimated_accuracy"] == pytest.approx(0.1)
    # A server of that class alone, and a model that tells the clients' samples apart.
    other = verdict(*[(80, 80, 100, 10, 10, 10, 10)] * 9).estimate()
    assert other["estimated_accuracy"] == pytest.approx(1.0)
    assert other["estimated_error"] == pytest.approx(math.hypot(1 / 91, 0.2 * 0.2))


def test_who_answers_and_what_is_sent_back_is_decided_without_weights() -> None:
    plain = [(9.0, 5.0, 10.0), (8.0, 5.0, 10.0), (9.0, 4.0, 10.0)]
    opposite = [(*one, 1.0, 8.0, 8.0, 0.0) for one in plain]
    first, second = verdict(*plain, answer="judged"), verdict(*opposite, answer="judged")
    assert first.base_answers
    assert second.base_answers
    assert first.comparison() == second.comparison()
    assert first.worth_sending_back() == second.worth_sending_back() == 0.0
    assert second.estimate()["estimated_accuracy"] == pytest.approx(1 / 8), "and of the one that answers"


def test_votes_of_three_numbers_are_read_beside_those_of_seven() -> None:
    old = verdict((5, 8, 10), (3, 9, 10)).rounds
    after = verdict((50, 80, 100, 20, 40, 50, 30), (30, 90, 100, 10, 10, 10, 40), before=old)
    assert after.rounds[0] == old[0]
    told = after.estimate()
    assert told["estimated_accuracy"] == pytest.approx(50 / 60), "those that were weighed"
    assert told["estimated_unweighed"] == pytest.approx((170 + 0.3 * 17) / (200 + 0.3 * 20)), "all of them"


def test_the_classes_that_are_sent_are_those_that_the_targets_name() -> None:
    judging = {"client_judgement": True, "estimate_classes": "server", "target_smoothing": 0.5}
    after, _, _ = judged_round("refined", **judging)
    assert torch.equal(after.memory[CLASSES], named_shares(after.memory[TARGETS]))
    mrtf = MrTF(settings(**judging))
    assert torch.equal(torch.as_tensor(mrtf.for_client(replace(after, round=7), 4)[CLASSES]), after.memory[CLASSES])
    assert torch.equal(mrtf.skipped_round(after).memory[CLASSES], after.memory[CLASSES])
    silent, _, _ = judged_round("refined", **{**judging, "estimate_classes": "clients"})
    assert CLASSES not in sent_candidates(silent)
