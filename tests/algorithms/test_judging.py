"""Clients judge: which samples they keep back, what they tell, and what the server makes of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms import ClientTask, ClientUpdate, algorithm_of
from mrtf_fedml.algorithms.judging import held_out
from mrtf_fedml.algorithms.mrtf import MrTF
from mrtf_fedml.algorithms.verdict import Verdict
from mrtf_fedml.algorithms.votes import VOTES, votes_on
from mrtf_fedml.data.shards import TensorShard
from mrtf_fedml.errors import UserError
from tests.conftest import small_settings


def shard(samples: int = 20) -> TensorShard:
    return TensorShard(torch.arange(40.0)[:, None], torch.arange(40) % 3, np.arange(samples), batch_size=8)


def inputs_of(part: Any) -> list[float]:
    return [float(x) for inputs, _ in part for x in inputs.flatten()]


def test_what_is_kept_back_is_the_same_in_every_round_and_never_trained_on() -> None:
    training, judged = held_out(shard(), 0.1, seed=3, client=4)
    assert inputs_of(judged) == inputs_of(held_out(shard(), 0.1, seed=3, client=4)[1])
    assert len(inputs_of(judged)) == 2
    assert sorted(inputs_of(training) + inputs_of(judged)) == [float(x) for x in range(20)]
    others = [inputs_of(held_out(shard(), 0.1, seed=3, client=client)[1]) for client in range(6)]
    assert len({tuple(one) for one in others}) > 1, "each client draws its own"


def test_a_client_of_three_samples_trains_on_all_of_them() -> None:
    training, judged = held_out(shard(3), 0.5, seed=0, client=0)
    assert (len(inputs_of(training)), len(inputs_of(judged))) == (3, 0)


def test_a_users_own_loader_trains_and_judges_with_everything() -> None:
    batches = [(torch.zeros(2, 1), torch.zeros(2, dtype=torch.long))]
    assert held_out(batches, 0.1, seed=0, client=0) == (batches, batches)


def test_votes_by_hand_also_at_positions() -> None:
    model = nn.Linear(1, 2)
    always = {
        name: {"weight": torch.zeros(2, 1), "bias": torch.tensor(bias)}
        for name, bias in (("zero", [1.0, 0.0]), ("one", [0.0, 1.0]))
    }
    data = [(torch.zeros(3, 1), torch.tensor([0, 0, 1])), (torch.zeros(1, 1), torch.tensor([0]))]
    assert votes_on(model, [always["zero"], always["one"]], data).tolist() == [3.0, 1.0, 4.0]

    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.bias[None, :, None].expand(len(x), 2, 3)

    told = votes_on(Positions(), [{"bias": torch.tensor([0.0, 1.0])}], [(torch.zeros(2, 3), torch.ones(2, 3))])
    assert told.tolist() == [6.0, 6.0]


def votes(*told: tuple[float, float, float]) -> list[ClientUpdate]:
    return [ClientUpdate(k, 1, {}, None, {VOTES: torch.tensor(one)}) for k, one in enumerate(told)]


def test_the_estimate_is_a_mean_over_samples_with_the_spread_of_clients() -> None:
    verdict = Verdict.after([], votes((5, 8, 10), (3, 9, 10)), "refined")
    told = verdict.estimate()
    assert told["estimated_accuracy"] == pytest.approx(17 / 20)
    # Two clients, each half a hit from the mean: sqrt((0.25 + 0.25) * 2 / 1) / 20.
    assert told["estimated_error"] == pytest.approx(math.sqrt(0.5 * 2) / 20)
    assert Verdict([], "refined").estimate() == {"estimated_accuracy": None, "estimated_error": None}


def test_the_base_answers_where_clients_find_it_better_beyond_chance() -> None:
    better = votes((9, 5, 10), (8, 5, 10), (9, 4, 10))
    assert Verdict.after([], better, "judged").base_answers
    assert not Verdict.after([], better, "refined").base_answers
    assert Verdict.after([], votes((5, 9, 10)), "aggregated").base_answers
    # Better by 0.05 with an error of 0.03: chance does that too.
    little = votes((8, 7, 10), (8, 8, 10), (9, 9, 10), (7, 6, 10), (8, 8, 10), (6, 6, 10))
    gain = Verdict.after([], little, "judged").comparison()
    assert gain["estimated_gain"] is not None
    assert gain["estimated_gain_error"] is not None
    assert gain["estimated_gain_error"] < -gain["estimated_gain"] < 2 * gain["estimated_gain_error"]
    assert not Verdict.after([], little, "judged").base_answers
    torn = votes((9, 5, 10), (4, 8, 10), (6, 5, 10))
    assert not Verdict.after([], torn, "judged").base_answers, "clients who contradict each other prove nothing"
    assert not Verdict([], "judged").base_answers


def test_a_model_between_the_two_answers_where_clients_find_them_level() -> None:
    def share(*told: tuple[float, float, float], answer: str = "judged") -> float:
        return Verdict.after([], votes(*told), answer).refined_share

    # No spread, so no error: half where level, three quarters at half of 0.04, all of it from there on.
    assert share((50, 50, 100), (80, 80, 100)) == 0.5
    assert share((50, 52, 100), (80, 82, 100)) == pytest.approx(0.75)
    assert share((50, 54, 100), (80, 84, 100)) == pytest.approx(1.0)
    assert share((50, 59, 100), (80, 89, 100)) == 1.0
    # A gain of 0, and an error of 0.02: sqrt((4 + 4) * 2 / 1) / 200.
    assert share((50, 52, 100), (82, 80, 100)) == pytest.approx(0.5 + 0.5 * 0.02 / 0.04)
    assert share((5, 9, 10), (9, 5, 10)) == 1.0, "who contradict each other have not found them level"
    assert share((90, 50, 100), (80, 42, 100)) == 0.0, "the base's, found better, answers alone"
    assert share((50, 50, 100), (80, 80, 100), answer="refined") == 1.0
    assert share((50, 50, 100), (80, 80, 100), answer="aggregated") == 0.0
    assert Verdict([], "judged").refined_share == 1.0
    told = Verdict.after([], votes((50, 52, 100), (80, 82, 100)), "judged")
    assert told.estimate()["estimated_accuracy"] == pytest.approx((0.25 * 130 + 0.75 * 134) / 200)
    assert told.comparison()["refined_share"] == pytest.approx(0.75)


def test_what_is_sent_back_grows_with_what_the_clients_gain() -> None:
    assert Verdict([], "judged").worth_sending_back() == 0.0
    assert Verdict.after([], votes((9, 5, 10), (8, 5, 10)), "judged").worth_sending_back() == 0.0
    # All clients gain one of ten: no spread, and half of what is much.
    assert Verdict.after([], votes((5, 6, 10), (3, 4, 10)), "judged").worth_sending_back() == pytest.approx(0.5)
    assert Verdict.after([], votes((1, 9, 10), (2, 9, 10)), "judged").worth_sending_back() == 1.0
    # Where it must be worth more than 0.1: nothing at that, half at 0.15, all of it from 0.2 on.
    for gain, worth in ((0, 0.0), (2, 0.0), (3, 0.5), (4, 1.0), (9, 1.0)):
        told = votes((5, 5 + gain, 20), (3, 3 + gain, 20))
        assert Verdict.after([], told, "judged").worth_sending_back(least=0.1) == pytest.approx(worth)


def test_older_rounds_count_less_and_are_forgotten() -> None:
    rounds: list[list[list[float]]] = []
    for _ in range(9):
        rounds = Verdict.after(rounds, votes((0, 10, 10), (0, 10, 10)), "judged").rounds
    assert len(rounds) == 5
    for _ in range(3):
        rounds = Verdict.after(rounds, votes((10, 0, 10), (9, 0, 10)), "judged").rounds
    assert Verdict(rounds, "judged").base_answers
    assert Verdict.after(rounds, [ClientUpdate(0, 1, {}, None)], "judged").rounds == rounds, "nobody judged"
    malformed = [*votes((1, 2, 0)), ClientUpdate(9, 1, {}, None, {VOTES: torch.zeros(7)})]
    assert Verdict.after(rounds, malformed, "judged").rounds == rounds


def test_a_judging_client_trains_as_the_base_does_on_what_is_left() -> None:
    judging = algorithm_of(small_settings(client_validation=0.1, answer="judged", feedback="never"))
    plain = algorithm_of(small_settings(feedback="never"))
    assert judging.has_own_client_rule()
    assert not plain.has_own_client_rule()
    model, start = nn.Linear(1, 3), {name: value.clone() for name, value in nn.Linear(1, 3).state_dict().items()}
    task = ClientTask(4, 0, start, shard(), 20)
    first = judging.train_client(model, task)
    assert VOTES not in first.extra, "before the first answer there is nothing to judge"
    kept = replace(task, data=held_out(shard(), 0.1, judging.seed, 4)[0])
    expected = plain.train_client(model, kept)
    assert all(torch.equal(first.weights[name], value) for name, value in expected.weights.items())
    refined = {f"refinery/refined/{name}": value for name, value in start.items()}
    again = judging.train_client(model, replace(task, round=1, extra=refined))
    told = again.extra[VOTES].tolist()
    assert told[0] == told[1], "both candidates are the same model"
    assert told[2] == 2


def test_where_clients_cannot_judge_the_preset_gives_way_and_the_user_is_told() -> None:
    # Ours, and FedML's own: its noise is on the weights alone, too.
    for promised in ({"clip": 1.0, "sigma": 1.0}, {"enable_dp": True}):
        private = algorithm_of(small_settings(preset="tuned", **promised))
        assert (private.own.client_judgement, private.own.answer, private.own.feedback) == (False, "refined", "never")
    with pytest.raises(UserError, match="client_validation: what clients find of a model is told without noise"):
        algorithm_of(small_settings(client_validation=0.1, clip=1.0, sigma=1.0))
    with pytest.raises(UserError, match="answer is 'judged' but no client judges; set client_judgement"):
        algorithm_of(small_settings(answer="judged"))
    with pytest.raises(UserError, match="feedback is 'judged' but no client judges; set client_judgement"):
        algorithm_of(small_settings(feedback="judged"))
    with pytest.raises(UserError, match="client_judgement: what clients find of a model is told without noise"):
        algorithm_of(small_settings(client_judgement=True, clip=1.0, sigma=1.0))
    with pytest.raises(UserError, match=r"client_validation is 0\.9"):
        small_settings(client_validation=0.9)


def test_who_takes_part_in_every_round_keeps_a_tenth_back() -> None:
    def kept(**changes: Any) -> float:
        algorithm = algorithm_of(small_settings(preset="tuned", **changes))
        assert isinstance(algorithm, MrTF)
        assert algorithm.judging
        return algorithm.kept_back

    assert kept() == 0.0
    assert kept(client_num_per_round=8) == 0.1
    assert kept(client_num_per_round=8, client_validation=0.0) == 0.0, "what a user says wins"
    assert kept(client_validation=0.25) == 0.25
    assert held_out(whole := shard(), 0.0, seed=0, client=0) == (whole, whole)
    silent = algorithm_of(small_settings(preset="tuned", client_judgement=False)).own
    assert (silent.answer, silent.feedback) == ("refined", "never")
