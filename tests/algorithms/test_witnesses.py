"""Samples that never train, and what the clients' estimate is without them and with them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms import ClientTask, ClientUpdate, MrTF, ServerState, algorithm_of
from mrtf_fedml.algorithms.judging import CALLED, sent_candidates
from mrtf_fedml.algorithms.verdict import Verdict
from mrtf_fedml.algorithms.votes import VOTES, unusable_votes
from mrtf_fedml.algorithms.witnesses import WITNESSES, called, parted, summons
from mrtf_fedml.data.shards import TensorShard
from mrtf_fedml.errors import UserError
from tests.conftest import small_settings

from .test_server_rules import scene, settings


def shard(samples: int, batch_size: int = 10) -> TensorShard:
    inputs, labels = torch.arange(samples, dtype=torch.float32)[:, None], torch.arange(samples) % 3
    return TensorShard(inputs, labels, np.arange(samples), batch_size)


def values(data: Any) -> list[float]:
    return [float(value) for inputs, _ in data for value in inputs.flatten()]


@pytest.mark.parametrize("samples", [100, 95, 41, 600])
@pytest.mark.parametrize("batch_size", [10, 64])
def test_a_pass_has_as_many_steps_as_before(samples: int, batch_size: int) -> None:
    whole = shard(samples, batch_size)
    training, witnesses = called(whole, 0.05, seed=0, client=3)
    assert isinstance(training, TensorShard)
    assert len(training) == len(whole)
    kept = [] if witnesses is None else values(witnesses)
    assert len(kept) <= round(0.05 * samples)
    assert sorted(values(training) + kept) == values(whole), "every sample trains or witnesses, none does both"


def test_how_many_there_are_by_hand() -> None:
    def witnesses(samples: int, batch_size: int) -> int:
        found = called(shard(samples, batch_size), 0.05, seed=0, client=3)[1]
        return 0 if found is None else len(values(found))

    assert witnesses(100, 10) == 5
    # Ten batches of 64 need 2 of the last 24 samples.
    assert witnesses(600, 64) == 22
    assert witnesses(92, 10) == 0
    assert witnesses(91, 10) == 0, "the last sample joins the batch before it"
    assert witnesses(8, 10) == 0


def test_they_are_the_same_in_every_round_and_others_at_every_client() -> None:
    first, again, other = (called(shard(100), 0.05, seed=0, client=client)[1] for client in (3, 3, 4))
    assert values(first) == values(again) != values(other)


def test_a_loader_that_cannot_be_divided_has_none() -> None:
    data = [(torch.ones(4, 1), torch.zeros(4, dtype=torch.long))]
    assert called(data, 0.05, seed=0, client=0) == (data, None)
    assert called(whole := shard(100), 0.0, seed=0, client=0) == (whole, None)


def verdict(*told: tuple[tuple[float, ...], tuple[float, ...] | None], answer: str = "refined") -> Verdict:
    updates = [
        ClientUpdate(
            client,
            1,
            {},
            None,
            {VOTES: torch.tensor(votes), **({} if seen is None else {WITNESSES: torch.tensor(seen)})},
        )
        for client, (votes, seen) in enumerate(told)
    ]
    return Verdict.after([], updates, answer)


def test_the_estimate_is_less_by_what_the_witnesses_do_not_find() -> None:
    # 95 and 85 of 100 are found; of five witnesses 4 and 3: 0.75 and 1.25 fewer than of the others.
    told = verdict(((90.0, 95.0, 100.0), (4.0, 4.0, 5.0)), ((80.0, 85.0, 100.0), (3.0, 3.0, 5.0))).estimate()
    assert told["estimated_accuracy"] == pytest.approx(0.90 - 2.0 / 10)
    assert told["estimated_flattery"] == pytest.approx(0.2)
    plain = math.sqrt((5**2 + 5**2) * 2) / 200
    of_witnesses = math.sqrt((0.25**2 + 0.25**2) * 2) / 10
    assert told["estimated_error"] == pytest.approx(math.hypot(plain, of_witnesses))


def test_by_chance_they_find_more_and_nothing_is_added() -> None:
    told = verdict(((5.0, 5.0, 10.0), (2.0, 2.0, 2.0)), ((5.0, 5.0, 10.0), (2.0, 2.0, 2.0))).estimate()
    assert told["estimated_accuracy"] == 0.5
    assert told["estimated_flattery"] == 0.0


def test_the_estimate_for_the_servers_classes_is_less_by_as_much() -> None:
    weighed = (50.0, 80.0, 100.0, 20.0, 40.0, 50.0, 0.0)
    with_them = verdict((weighed, (3.0, 3.0, 5.0)), (weighed, (3.0, 3.0, 5.0))).estimate()
    without = verdict((weighed, None), (weighed, None)).estimate()
    assert "estimated_flattery" not in without
    for key in ("estimated_accuracy", "estimated_unweighed"):
        assert with_them[key] == pytest.approx((without[key] or 0.0) - 0.2)


def test_who_answers_and_what_is_sent_back_is_decided_without_them() -> None:
    votes = [(5.0, 6.0, 10.0), (3.0, 4.0, 10.0)]
    plain = verdict(*[(one, None) for one in votes], answer="judged")
    told = verdict(*[(one, (2.0, 0.0, 2.0)) for one in votes], answer="judged")
    assert plain.comparison() == told.comparison()
    assert plain.worth_sending_back() == told.worth_sending_back() == pytest.approx(0.5)


def test_rounds_without_witnesses_are_read_beside_those_with_them() -> None:
    before = verdict(((5.0, 8.0, 10.0), None), ((5.0, 8.0, 10.0), None)).rounds
    updates = [
        ClientUpdate(k, 1, {}, None, {VOTES: torch.tensor([5.0, 8.0, 10.0]), WITNESSES: torch.tensor([1.0, 1.0, 2.0])})
        for k in range(2)
    ]
    assert Verdict.after(before, updates, "refined").estimate()["estimated_accuracy"] == pytest.approx(0.5)


def test_votes_in_another_shape_are_read_as_the_numbers_that_were_checked() -> None:
    told = {VOTES: torch.tensor([[5.0, 8.0, 10.0]]), WITNESSES: torch.tensor([[1.0], [1.0], [2.0]])}
    update = ClientUpdate(0, 1, {}, None, told)
    assert unusable_votes(update) is None
    assert Verdict.after([], [update], "judged").rounds == [[[5.0, 8.0, 10.0, 1.0, 1.0, 2.0]]]


def test_a_client_trains_on_what_is_left_and_tells_three_numbers_more() -> None:
    judging = algorithm_of(small_settings(client_judgement=True, client_witnesses=0.05, feedback="never"))
    plain = algorithm_of(small_settings(feedback="never"))
    model, start = nn.Linear(1, 3), {name: value.clone() for name, value in nn.Linear(1, 3).state_dict().items()}
    refined = {f"refinery/refined/{name}": value for name, value in start.items()}
    task = ClientTask(4, 1, start, shard(100), 100)
    before = judging.train_client(model, replace(task, extra=refined))
    everything = plain.train_client(model, task)
    assert all(torch.equal(before.weights[name], value) for name, value in everything.weights.items()), "not called"
    assert WITNESSES not in before.extra
    told = judging.train_client(model, replace(task, extra=refined | {CALLED: torch.tensor(0.05)}))
    expected = plain.train_client(model, replace(task, data=called(shard(100), 0.05, judging.seed, 4)[0]))
    assert all(torch.equal(told.weights[name], value) for name, value in expected.weights.items())
    assert told.extra[VOTES].tolist()[2] == 100, "all samples judge"
    assert told.extra[WITNESSES].tolist()[2] == 5


def test_they_are_called_when_clients_have_begun_to_learn_and_stay_called() -> None:
    """log 10 is 2.303, of which 0.3 are 0.691."""
    assert summons(0.05, {}, local_loss=0.70, classes=10) == {}
    assert summons(0.05, {}, local_loss=0.69, classes=10)[CALLED] == 0.05
    assert summons(0.05, {CALLED: torch.tensor(0.05)}, local_loss=2.0, classes=10)[CALLED] == 0.05
    assert summons(0.0, {}, local_loss=0.1, classes=10) == {}


def test_the_server_keeps_the_call_and_sends_it_to_every_client() -> None:
    def after(loss: float, **refinery: Any) -> ServerState:
        bench, updates, state = scene()
        updates = [replace(update, loss=loss) for update in updates]
        mrtf = MrTF(settings(client_judgement=True, **refinery))
        return mrtf.finish_round(state, updates, mrtf.aggregate(updates), bench)[0]

    learning = after(0.01, client_witnesses=0.1)
    assert float(learning.memory[CALLED]) == 0.1
    assert float(sent_candidates(learning)[CALLED]) == 0.1
    assert CALLED not in after(5.0, client_witnesses=0.1).memory, "they know nothing yet"
    assert CALLED not in after(0.01).memory


@pytest.mark.parametrize(("share", "kept"), [(7.0, 50), (-1.0, None), (0.05, 5)])
def test_no_server_has_a_client_keep_more_than_half(share: float, kept: int | None) -> None:
    data = shard(100, batch_size=100)
    task = ClientTask(4, 1, {}, data, 100, {CALLED: torch.tensor(share)})
    witnesses = parted(task, 0.0, seed=0)[2]
    assert (None if witnesses is None else len(values(witnesses))) == kept
    assert parted(task, 0.1, seed=0)[2] is None, "who judges by what never trains needs none"


def test_they_are_called_where_asked_for_and_clients_judge_by_what_they_train_on() -> None:
    def share(**changes: Any) -> float:
        algorithm = algorithm_of(small_settings(**changes))
        assert isinstance(algorithm, MrTF)
        return algorithm.witnesses

    asked = {"preset": "tuned", "client_witnesses": 0.05}
    assert share(**asked) == 0.05
    assert share(preset="tuned") == 0.0, "they cost accuracy in long runs"
    assert share(**asked, client_num_per_round=8) == 0.0, "there a tenth judges and never trains"
    assert share(**asked, client_validation=0.2) == 0.0
    assert share(preset="paper") == share(preset="released") == 0.0
    with pytest.raises(UserError, match=r"client_witnesses is 0\.05 but no client judges"):
        share(**asked, clip=1.0, sigma=1.0)
    with pytest.raises(UserError, match=r"client_witnesses is 0\.1 but no client judges; set client_judgement to true"):
        share(client_witnesses=0.1)
