"""Client validation: the split, what a client counts, what the wrapper sends, and what the server concludes."""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms import ClientTask, ClientUpdate, FedAvg, MrTF, build_algorithm
from mrtf_fedml.algorithms.evaluation import EvaluationCounts
from mrtf_fedml.algorithms.input_cells import InputCells
from mrtf_fedml.algorithms.mrtf.client_validation import (
    COUNTS,
    CandidateCounts,
    ClientValidation,
    ValidationSummary,
    count_correct,
    train_validation_split,
)
from mrtf_fedml.data.shards import TensorShard
from mrtf_fedml.models.group import ModelGroup, member_names
from tests.conftest import small_settings

from ..test_server_rules import equal, server_setup, settings

ALWAYS = {
    name: {"weight": torch.zeros(2, 1), "bias": torch.tensor(bias)}
    for name, bias in (("zero", [1.0, 0.0]), ("one", [0.0, 1.0]))
}


def shard(samples: int = 20) -> TensorShard:
    return TensorShard(torch.arange(40.0)[:, None], torch.arange(40) % 3, np.arange(samples), batch_size=8)


def inputs_of(part: Any) -> list[float]:
    return [float(x) for inputs, _ in part for x in inputs.flatten()]


def plain(base: int, refined: int, samples: int) -> CandidateCounts:
    return CandidateCounts(samples, base, refined)


def summary(*clients: CandidateCounts) -> ValidationSummary:
    return ValidationSummary([list(clients)])


def test_split_is_the_same_in_every_round_and_parts_are_disjoint() -> None:
    training, validation = train_validation_split(shard(), 0.1, seed=3, client=4)
    assert inputs_of(validation) == inputs_of(train_validation_split(shard(), 0.1, seed=3, client=4)[1])
    assert len(inputs_of(validation)) == 2
    assert sorted(inputs_of(training) + inputs_of(validation)) == [float(x) for x in range(20)]
    others = [inputs_of(train_validation_split(shard(), 0.1, seed=3, client=client)[1]) for client in range(6)]
    assert len({tuple(one) for one in others}) > 1, "each client draws its own"


def test_split_of_three_samples_trains_on_all_of_them() -> None:
    training, validation = train_validation_split(shard(3), 0.5, seed=0, client=0)
    assert (len(inputs_of(training)), len(inputs_of(validation))) == (3, 0)


def test_split_of_users_loader_or_by_zero_returns_all_samples_twice() -> None:
    batches = [(torch.zeros(2, 1), torch.zeros(2, dtype=torch.long))]
    assert train_validation_split(batches, 0.1, seed=0, client=0) == (batches, batches)
    assert train_validation_split(whole := shard(), 0.0, seed=0, client=0) == (whole, whole)


def test_split_holds_out_each_class_in_proportion_and_never_a_whole_class() -> None:
    labels = torch.tensor([0] * 40 + [1] * 20 + [2] * 2 + [3])
    data = TensorShard(torch.arange(63.0)[:, None], labels, np.arange(63), batch_size=8)
    held = torch.zeros(4)
    for client in range(200):
        training, validation = train_validation_split(data, 0.2, seed=0, client=client)
        counts = torch.bincount(torch.cat([y for _, y in validation]), minlength=4)
        assert (len(inputs_of(validation)), len(inputs_of(training))) == (13, 50)
        assert counts[0] in (8, 9)
        assert counts[1] in (4, 5)
        assert counts[2] < 2, "one sample of a class is always trained on"
        held += counts
    assert held[3] == 0
    assert 40 <= held[2] <= 120, "a class of two samples is held out in proportion, on average"


def test_count_correct_by_hand() -> None:
    data = [(torch.zeros(1, 1), torch.tensor([label])) for label in (0, 0, 1, 0)]
    assert count_correct(nn.Linear(1, 2), [ALWAYS["zero"], ALWAYS["one"]], data).tolist() == [4, 3, 1]
    assert count_correct(nn.Linear(1, 2), [ALWAYS["zero"], ALWAYS["one"]], []).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("numbers", "valid"),
    [([9, 3, 4], True), ([10, 3, 4], False), ([5, 6, 4], False), ([5, -1, 4], False), ([5, 4], False), ([], False)],
)
def test_counts_beyond_the_announced_samples_exclude_the_client(numbers: list[int], valid: bool) -> None:
    wrapper = ClientValidation(FedAvg(settings()), 0.1)
    state = wrapper.init_state({})
    for tensor, expected in (
        (torch.tensor(numbers, dtype=torch.int64), valid),
        (torch.tensor(numbers, dtype=torch.float64), False),
    ):
        reason = wrapper.validate_update(state, ClientUpdate(0, 9, {}, None, {COUNTS: tensor}))
        assert (reason is None) == expected
        assert reason is None or "validation counts" in reason


def test_counts_stay_bounded_by_the_samples_that_a_client_announced_first() -> None:
    wrapper = ClientValidation(FedAvg(settings()), 0.1)
    server, updates, state = server_setup()
    first = replace(updates[0], client=0, samples=9)
    after, _ = wrapper.server_update(state, [first], first.weights, server)
    later = replace(first, samples=10**6)
    again, _ = wrapper.server_update(after, [later], first.weights, server)
    for samples, valid in ((9, True), (10, False)):
        counts = {COUNTS: torch.tensor([samples, 1, 1])}
        assert (wrapper.validate_update(again, replace(later, payload=counts)) is None) == valid
    evaluation = wrapper.evaluation_state(again, server)
    assert evaluation is not None
    zeros = EvaluationCounts.zeros(server.classes)
    zeros.confusion[0, 0] = zeros.confidence[0, 1, 5] = zeros.true_class[5] = 10
    assert wrapper.validate_update(evaluation, replace(later, payload=zeros.to_payload())) is not None


def test_evaluation_task_evaluates_the_held_out_samples_and_does_not_train() -> None:
    algorithm = build_algorithm(small_settings(validation_fraction=0.2, client_validation=True))
    server, _, state = server_setup()
    evaluation = algorithm.evaluation_state(state, server)
    assert evaluation is not None
    assert equal(evaluation.weights, state.prediction_weights)
    weights = nn.Linear(1, 3).state_dict()
    sent = algorithm.client_payload(evaluation, 4)
    cells = InputCells.fit(torch.arange(40.0)[:, None], classes=3)
    assert cells is not None
    cell_names = cells.to_payload("validation/cells/")
    assert sent.keys() >= cell_names.keys()
    payload = {**{name: torch.tensor(3.0) for name in sent}, **cell_names}
    update = algorithm.train_client(nn.Linear(1, 3), ClientTask(4, 9, weights, shard(), 20, payload))
    assert equal(update.weights, weights)
    counts = EvaluationCounts.from_payload(update.payload)
    assert counts is not None
    assert counts.is_possible(3, most=20, input_cells=cells)
    assert counts.samples == 4
    assert counts.cells.sum(dim=(1, 2)).tolist() == [20] * cells.shape[0], "all samples are counted in each division"
    unsplittable = algorithm.train_client(nn.Linear(1, 3), ClientTask(4, 9, weights, list(shard()), 20, payload))
    empty = EvaluationCounts.from_payload(unsplittable.payload)
    assert empty is not None
    assert empty.samples == 0, "it has trained on all its samples, and evaluates none"
    assert MrTF(settings(client_validation=True, validation_fraction=0.0)).evaluation_state(state, server) is None


@pytest.mark.parametrize(
    "damage",
    ["none", "negative", "too many", "overflow", "float", "shape", "missing", "other", "cells", "too many cells"],
)
def test_impossible_evaluation_counts_exclude_the_client(damage: str) -> None:
    wrapper = ClientValidation(FedAvg(settings()), 0.1)
    server, _, state = server_setup()
    evaluation = wrapper.evaluation_state(state, server)
    assert evaluation is not None
    cells = InputCells.fit(server.inputs, server.classes)
    assert cells is not None
    zeros = EvaluationCounts.zeros(server.classes, cells)
    zeros.cells[:, 0, 0] = zeros.features[:, 0, 0] = 9
    table, confidence, true_class = zeros.confusion, zeros.confidence, zeros.true_class
    table[0, 0], table[1, 0], confidence[0, 1, 5], confidence[0, 0, 5], true_class[5] = 8, 1, 8, 1, 9
    if damage == "negative":
        table[1, 0] = -1
    elif damage == "too many":
        table[0, 1] = 1
    elif damage == "overflow":
        table[0, 0] = table[0, 1] = 2**62
    elif damage == "float":
        table = table.double()
    elif damage == "shape":
        table = table[:1]
    elif damage == "other":
        confidence[0, 1, 5] = 7
    elif damage == "cells":
        zeros.cells[0, 0, 0] = 8
    elif damage == "too many cells":
        zeros.cells[:, 0, 0] = zeros.features[:, 0, 0] = 10
    payload = replace(zeros, confusion=table).to_payload()
    if damage == "missing":
        payload.popitem()
    reason = wrapper.validate_update(evaluation, ClientUpdate(0, 9, {}, None, payload))
    assert (reason is None) == (damage == "none")


def test_estimate_is_a_mean_over_samples_with_the_spread_of_clients() -> None:
    metrics = summary(plain(5, 8, 10), plain(3, 9, 10)).metrics(1.0, True)
    assert metrics["estimated_accuracy"] == pytest.approx(17 / 20)
    # Two clients, each half a sample from the mean, have sqrt((0.25 + 0.25) * 2 / 1) / 20, less than 22 coins.
    assert metrics["estimated_accuracy_stderr"] == pytest.approx(math.sqrt(18 / 22 * 4 / 22 / 22))
    spread = summary(plain(5, 3, 10), plain(3, 9, 10)).metrics(1.0, True)
    assert spread["estimated_accuracy_stderr"] == pytest.approx(math.sqrt(2 * 3**2 * 2) / 20)
    all_right = summary(plain(5, 10, 10), plain(3, 10, 10)).metrics(1.0, True)
    assert all_right["estimated_accuracy_stderr"] == pytest.approx(math.sqrt(21 / 22 * 1 / 22 / 22))
    trained = summary(plain(5, 8, 10), plain(3, 9, 10)).metrics(1.0, is_held_out=False)
    assert trained["estimated_accuracy"] is None, "no estimate from samples that were trained on"
    assert trained["estimated_gain"] == pytest.approx(9 / 20)
    # A client that claims any number of samples has twice the weight of the median client.
    claimed = summary(plain(5, 5, 10), plain(5, 5, 10), plain(100000, 100000, 100000)).metrics(1.0, True)
    assert claimed["estimated_accuracy"] == pytest.approx((5 + 5 + 20) / 40)
    empty = ValidationSummary([]).metrics(1.0, True)
    assert (empty["estimated_accuracy"], empty["estimated_accuracy_stderr"], empty["estimated_gain"]) == (None,) * 3


def test_prediction_share_is_zero_where_the_base_is_better_beyond_chance() -> None:
    assert summary(plain(9, 5, 10), plain(8, 5, 10), plain(9, 4, 10)).prediction_share() == 0.0
    # Better by 0.05 with an error of 0.03: chance does that too.
    pairs = ((8, 7), (8, 8), (9, 9), (7, 6), (8, 8), (6, 6))
    little = summary(*(plain(base, refined, 10) for base, refined in pairs))
    gain, error = little.gain() or (0.0, 0.0)
    assert error < -gain < 2 * error
    assert little.prediction_share() > 0
    torn = summary(plain(9, 5, 10), plain(4, 8, 10), plain(6, 5, 10))
    assert torn.prediction_share() > 0, "clients that contradict each other prove nothing"
    assert ValidationSummary([]).prediction_share() == 1.0


def test_prediction_share_is_a_half_where_both_are_equal_and_grows_with_the_gain() -> None:
    def share(*pairs: tuple[int, int], samples: int = 100) -> float:
        return summary(*(plain(*pair, samples) for pair in pairs)).prediction_share()

    # No spread, so no error: a half where equal, three quarters at half of 0.04, all of it from there on.
    assert share((50, 50), (80, 80)) == 0.5
    assert share((50, 52), (80, 82)) == pytest.approx(0.75)
    assert share((50, 54), (80, 84)) == pytest.approx(1.0)
    assert share((50, 59), (80, 89)) == 1.0
    # A gain of 0, and an error of 0.02: sqrt((4 + 4) * 2 / 1) / 200.
    assert share((50, 52), (82, 80)) == pytest.approx(0.5 + 0.5 * 0.02 / 0.04)
    assert share((5, 9), (9, 5), samples=10) == 1.0, "clients that contradict each other have not found them equal"
    assert share((90, 50), (80, 42)) == 0.0
    mixed = summary(plain(50, 52, 100), plain(80, 82, 100)).metrics(0.75, True)
    assert mixed["estimated_accuracy"] == pytest.approx((0.25 * 130 + 0.75 * 134) / 200)


def test_broadcast_share_grows_with_the_gain_beyond_chance() -> None:
    assert ValidationSummary([]).broadcast_share() == 0.0
    assert summary(plain(9, 5, 10), plain(8, 5, 10)).broadcast_share() == 0.0
    # All clients gain one of ten: no spread, and half of what is much.
    assert summary(plain(5, 6, 10), plain(3, 4, 10)).broadcast_share() == pytest.approx(0.5)
    assert summary(plain(1, 9, 10), plain(2, 9, 10)).broadcast_share() == 1.0
    # Where it must gain more than 0.1: nothing at that, half at 0.15, all of it from 0.2 on.
    for gain, share in ((0, 0.0), (2, 0.0), (3, 0.5), (4, 1.0), (9, 1.0)):
        found = summary(plain(5, 5 + gain, 20), plain(3, 3 + gain, 20))
        assert found.broadcast_share(least=0.1) == pytest.approx(share)


def rounds_after(wrapper: ClientValidation, state: Any, counts: list[CandidateCounts], number: int) -> Any:
    updates = [ClientUpdate(k, 1, {}, None, {COUNTS: torch.tensor(astuple(each)[:3])}) for k, each in enumerate(counts)]
    for _ in range(number):
        state, _ = wrapper.server_update(state, updates, {}, None)  # type: ignore[arg-type]
    return state


def test_only_the_last_five_rounds_count() -> None:
    wrapper = ClientValidation(FedAvg(settings()), 0.0)
    state = rounds_after(wrapper, wrapper.init_state({}), [plain(0, 10, 10)] * 2, 9)
    assert len(ValidationSummary.of(state.memory).rounds) == 5
    state = rounds_after(wrapper, state, [plain(10, 0, 10), plain(9, 0, 10)], 5)
    found = ValidationSummary.of(state.memory)
    assert found.prediction_share() == 0.0
    silent = rounds_after(wrapper, state, [], 1)
    assert ValidationSummary.of(silent.memory) == found, "no client validated"
    empty = rounds_after(wrapper, state, [plain(0, 0, 0)], 1)
    assert ValidationSummary.of(empty.memory) == found, "no sample was classified"
    assert ValidationSummary.of(wrapper.skip_round(state).memory) == found


def test_validating_client_trains_as_the_base_on_the_training_split() -> None:
    validating = build_algorithm(
        small_settings(validation_fraction=0.1, predict_with="client_validated", broadcast="aggregated")
    )
    base = build_algorithm(small_settings(broadcast="aggregated"))
    assert validating.has_own_client_rule()
    assert not base.has_own_client_rule()
    model, start = nn.Linear(1, 3), {name: value.clone() for name, value in nn.Linear(1, 3).state_dict().items()}
    task = ClientTask(4, 0, start, shard(), 20)
    first = validating.train_client(model, task)
    assert COUNTS not in first.payload, "before the first round's end there is nothing to validate"
    split = replace(task, data=train_validation_split(shard(), 0.1, validating.seed, 4)[0])
    expected = base.train_client(model, split)
    assert all(torch.equal(first.weights[name], value) for name, value in expected.weights.items())
    sent = {f"validation/refined/{name}": value for name, value in start.items()}
    again = validating.train_client(model, replace(task, round=1, payload=sent))
    counts = CandidateCounts.from_tensor(again.payload[COUNTS], most=20)
    assert counts is not None
    assert counts.base_correct == counts.refined_correct, "both candidates are the same model"
    assert counts.samples == 2


def test_client_counts_each_member_of_a_group_of_models() -> None:
    group = ModelGroup({name: nn.Linear(1, 2) for name in ALWAYS})
    weights = {f"members.{name}.{key}": value for name, own in ALWAYS.items() for key, value in own.items()}
    weights = {**weights, "members.one.bias": torch.tensor([0.0, 5.0]), "active": torch.tensor(-1)}
    data = TensorShard(torch.zeros(6, 1), torch.tensor([0, 1, 1, 1, 0, 1]), np.arange(6), batch_size=4)
    algorithm = ClientValidation(FedAvg(small_settings(models={"one": "linear", "zero": "linear"})), 0.0)
    payload = {f"validation/refined/{key}": value for key, value in weights.items()}
    group.own = 0
    update = algorithm.train_client(group, ClientTask(0, 1, weights, data, 6, payload))
    names = member_names(weights)
    counts = CandidateCounts.of(update.payload[COUNTS].tolist())
    assert counts.refined_correct == 4, "the member that predicts one is surer"
    assert dict(zip(names, counts.members_correct, strict=True)) == {"zero": 2, "one": 4}
    assert CandidateCounts.from_tensor(update.payload[COUNTS], most=6, members=2) is not None
    assert CandidateCounts.from_tensor(update.payload[COUNTS], most=6) is None
    assert CandidateCounts.from_tensor(torch.tensor([6, 3, 3, 7, 0]), most=6, members=2) is None


@pytest.mark.parametrize(
    ("members", "preferred"),
    [((90, 50), 0), ((50, 90), 1), ((60, 60), None), ((10, 20), None)],
)
def test_member_is_preferred_if_it_is_better_than_the_mean_beyond_chance(
    members: tuple[int, int], preferred: int | None
) -> None:
    found = summary(*(CandidateCounts(100, 50 + shift, 60 - shift, members) for shift in (0, 2, 1)))
    assert found.preferred_member() == preferred
    metrics = found.metrics(found.prediction_share(), is_held_out=True)
    assert metrics.get("predicting_model") == preferred
    if preferred is not None:
        assert found.prediction_share() == 1.0
        assert metrics["estimated_accuracy"] == pytest.approx(0.9)


def test_member_that_is_worse_than_the_bases_model_is_not_preferred() -> None:
    found = summary(*(CandidateCounts(100, 95 + shift, 60, (90, 10)) for shift in (0, 2, 1)))
    assert found.preferred_member() is None
