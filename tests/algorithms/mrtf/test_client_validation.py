"""Client validation: the split, what a client counts, what the wrapper sends, and what the server concludes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms import ClientTask, ClientUpdate, FedAvg, MrTF, build_algorithm
from mrtf_fedml.algorithms.mrtf.client_validation import (
    COUNTS,
    ClientValidation,
    ValidationCounts,
    ValidationSummary,
    class_weights,
    count_correct,
    train_validation_split,
)
from mrtf_fedml.data.shards import TensorShard
from mrtf_fedml.refinery.class_prior import predicted_class_frequencies
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


def plain(base: float, refined: float, samples: float) -> ValidationCounts:
    """Counts of a client whose classes are the server's."""
    return ValidationCounts(base, refined, samples, base, refined, samples, samples)


def summary(*clients: ValidationCounts) -> ValidationSummary:
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


def make_counts(labels: list[int], frequencies: list[float]) -> ValidationCounts:
    """By a client with these samples, of a model that always predicts 0 and one that always predicts 1."""
    data = [(torch.zeros(1, 1), torch.tensor([label])) for label in labels]
    frequency = torch.tensor(frequencies, dtype=torch.float64)
    return count_correct(nn.Linear(1, 2), [ALWAYS["zero"], ALWAYS["one"]], data, frequency)


def test_counts_by_hand() -> None:
    mine = [0, 0, 1, 0]
    same = make_counts(mine, [0.75, 0.25])
    assert same == ValidationCounts(3, 1, 4, 3, 1, 4, pytest.approx(4 * 0.25 / (0.75**2 + 0.25**2)))
    # A zero counts 0.5 * 4 / 3 and the one 0.5 * 4 / 1: both classes have the same weight.
    assert make_counts(mine, [0.5, 0.5]).to_tensor().tolist()[:6] == pytest.approx([3, 1, 4, 2, 2, 4])
    assert make_counts(mine, [1.0, 0.0]).to_tensor().tolist()[:6] == pytest.approx([3, 1, 4, 4, 0, 4])
    # A client with half of the server's classes has half of its samples' weight, one with none of them has none.
    assert make_counts([0, 0, 0, 0], [0.5, 0.5]).to_tensor().tolist()[:6] == pytest.approx([4, 0, 4, 2, 0, 2])
    assert make_counts([1, 1], [1.0, 0.0]).to_tensor().tolist()[:6] == [0, 2, 2, 0, 0, 0]


def test_similar_samples_by_hand() -> None:
    # The refined model predicts 1 for all four. A server whose samples are predicted so too: all four are similar.
    assert make_counts([0, 0, 1, 0], [0.0, 1.0]).similar_samples == 4
    assert make_counts([0, 0, 1, 0], [1.0, 0.0]).similar_samples == 0


def test_one_sample_does_not_represent_its_class() -> None:
    # Half of an equal share of 20 samples are 5: the single one counts 0.5 * 20 / 5, not 0.5 * 20 / 1.
    assert make_counts([0] * 19 + [1], [0.5, 0.5]).to_tensor().tolist()[:6] == pytest.approx([19, 1, 20, 10, 2, 12])
    assert class_weights(torch.zeros(3), torch.ones(3) / 3).tolist() == [0, 0, 0], "no samples"


def test_labels_that_are_no_class_are_counted_and_never_weighted() -> None:
    assert make_counts([0, 1, -1, 7], [0.5, 0.5]).to_tensor().tolist()[:6] == [1, 1, 4, 1, 1, 2]


def test_validation_counts_each_position_of_a_sample() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.bias[None, :, None].expand(len(x), 2, 4)

    data = [(torch.zeros(1, 4), torch.tensor([[0, 0, 0, 1]]))]
    candidates = [{"bias": torch.tensor([1.0, 0.0])}] * 2
    counts = count_correct(Positions(), candidates, data, torch.tensor([0.5, 0.5]))
    assert counts.to_tensor().tolist() == pytest.approx([3, 3, 4, 2, 2, 4, 4])


@pytest.mark.parametrize(
    ("numbers", "valid"),
    [
        ([3.0, 4.0, 5.0, 2.0, 3.0, 4.0, 6.0], True),
        ([3.0, 4.0, 5.0, 0.0, 0.0, 0.0, 0.0], True),
        ([3.0, 4.0, 5.0, 2.0, 4.5, 4.0, 5.0], False),
        ([3.0, 4.0, 5.0, 2.0, 3.0, 6.0, 5.0], False),
        ([3.0, 4.0, 5.0, -2.0, 3.0, 4.0, 5.0], False),
        ([6.0, 4.0, 5.0, 2.0, 3.0, 4.0, 5.0], False),
        ([3.0, 4.0, 5.0, 2.0, 3.0, 4.0, -1.0], False),
        ([3.0, 4.0, 5.0, 2.0, 3.0, 4.0, 1e300], False),
        ([3.0, 4.0, 5.0, 2.0, 3.0, 4.0], False),
        ([3.0, 4.0, 5.0], False),
        ([], False),
    ],
)
def test_impossible_counts_exclude_the_client(numbers: list[float], valid: bool) -> None:
    update = ClientUpdate(0, 9, {}, None, {COUNTS: torch.tensor(numbers, dtype=torch.float64)})
    wrapper = ClientValidation(FedAvg(settings()), 0.0)
    reason = wrapper.validate_update(wrapper.init_state({}), update)
    assert (reason is None) == valid
    if reason is not None:
        assert "validation counts" in reason


def test_counts_survive_the_tensor_of_any_shape() -> None:
    counts = ValidationCounts(1.0, 2.0, 3.0, 0.5, 1.5, 2.5, 3.5)
    assert ValidationCounts.from_tensor(counts.to_tensor()) == counts
    assert ValidationCounts.from_tensor(counts.to_tensor().reshape(7, 1)) == counts


def test_estimate_is_a_mean_over_samples_with_the_spread_of_clients() -> None:
    metrics = summary(plain(5, 8, 10), plain(3, 9, 10)).metrics(1.0, False)
    assert metrics["estimated_accuracy"] == pytest.approx(17 / 20)
    # Two clients, each half a sample from the mean: sqrt((0.25 + 0.25) * 2 / 1) / 20.
    assert metrics["estimated_accuracy_stderr"] == pytest.approx(math.sqrt(0.5 * 2) / 20)
    assert "estimated_optimism" not in metrics
    assert summary(plain(5, 8, 10)).metrics(1.0, is_held_out=True)["estimated_optimism"] == 0.0
    empty = ValidationSummary([]).metrics(1.0, False)
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
    def share(*pairs: tuple[float, float], samples: float = 100) -> float:
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
    mixed = summary(plain(50, 52, 100), plain(80, 82, 100)).metrics(0.75, False)
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


def rounds_after(wrapper: ClientValidation, state: Any, counts: list[ValidationCounts], number: int) -> Any:
    updates = [ClientUpdate(k, 1, {}, None, {COUNTS: each.to_tensor()}) for k, each in enumerate(counts)]
    for _ in range(number):
        state, _ = wrapper.server_update(state, updates, {}, None)  # type: ignore[arg-type]
    return state


def test_older_rounds_count_less_and_are_forgotten() -> None:
    wrapper = ClientValidation(FedAvg(settings()), 0.0)
    state = rounds_after(wrapper, wrapper.init_state({}), [plain(0, 10, 10)] * 2, 9)
    assert len(ValidationSummary.of(state.memory).rounds) == 5
    state = rounds_after(wrapper, state, [plain(10, 0, 10), plain(9, 0, 10)], 3)
    found = ValidationSummary.of(state.memory)
    assert found.prediction_share() == 0.0
    silent = rounds_after(wrapper, state, [], 1)
    assert ValidationSummary.of(silent.memory) == found, "no client validated"
    empty = rounds_after(wrapper, state, [plain(0, 0, 0)], 1)
    assert ValidationSummary.of(empty.memory) == found, "no sample was classified"
    assert ValidationSummary.of(wrapper.skip_round(state).memory) == found


def test_estimate_moves_to_the_weighted_counts_where_the_servers_classes_are_different() -> None:
    # A third of the clients' samples are predicted as the server's are: its classes are different.
    metrics = summary(
        ValidationCounts(50, 80, 100, 20, 40, 50, 30), ValidationCounts(30, 90, 100, 10, 10, 10, 40)
    ).metrics(1.0, False)
    assert metrics["estimated_accuracy"] == pytest.approx(50 / 60)
    assert metrics["estimated_accuracy_unweighted"] == pytest.approx(170 / 200)
    assert metrics["estimated_accuracy_unweighted_stderr"] == pytest.approx(math.sqrt((5**2 + 5**2) * 2) / 200)
    # Each is 5 / 3 of a sample off, and two of such weights are 60^2 / (50^2 + 10^2) = 18 / 13 clients.
    by_chance = math.sqrt(2 * (5 / 3) ** 2 * (18 / 13) / (5 / 13)) / 60
    doubt = (1 - 0.85) * (50 / 60 - 0.85)
    assert metrics["estimated_accuracy_stderr"] == pytest.approx(math.hypot(by_chance, doubt))


def test_estimate_is_halfway_where_the_classes_are_half_different() -> None:
    # Seven of eight are similar: half of the way, and half of either error.
    metrics = summary(
        ValidationCounts(50, 80, 100, 20, 40, 50, 87.5), ValidationCounts(30, 90, 100, 10, 10, 10, 87.5)
    ).metrics(1.0, False)
    assert metrics["estimated_accuracy"] == pytest.approx((50 / 60 + 0.85) / 2)
    own = math.sqrt((5**2 + 5**2) * 2) / 200
    other = math.sqrt(2 * (5 / 3) ** 2 * (18 / 13) / (5 / 13)) / 60
    doubt = (1 - 0.85) * (50 / 60 - 0.85) / 2
    assert metrics["estimated_accuracy_stderr"] == pytest.approx(math.hypot((own + other) / 2, doubt))


@pytest.mark.parametrize("similar", [10.0, 14.0])
def test_estimate_is_unweighted_where_the_classes_are_the_servers(similar: float) -> None:
    votes = [(5.0, 8.0, 10.0), (3.0, 9.0, 10.0), (6.0, 6.0, 10.0)]
    metrics = summary(*(ValidationCounts(*one, 1.0, 5.0, 5.0, similar) for one in votes)).metrics(1.0, False)
    assert metrics["estimated_accuracy"] == metrics["estimated_accuracy_unweighted"]
    assert metrics["estimated_accuracy_stderr"] == metrics["estimated_accuracy_unweighted_stderr"]


def test_few_clients_with_the_servers_classes_have_a_large_error() -> None:
    def found(*clients: tuple[float, ...]) -> dict[str, float | None]:
        return summary(*(ValidationCounts(*one) for one in clients)).metrics(1.0, False)

    alone = found((50, 80, 100, 20, 40, 50, 0), (30, 90, 100, 0, 0, 0, 0))
    assert alone["estimated_accuracy"] == pytest.approx(0.8)
    assert alone["estimated_accuracy_stderr"] == 1.0, "one client has no spread"
    hardly = found(*[(50, 80, 100, 2e-4, 4e-4, 5e-4, 0)] * 9)
    assert hardly["estimated_accuracy"] == pytest.approx(0.8)
    assert hardly["estimated_accuracy_stderr"] == pytest.approx(1.0, abs=0.01), "less than one sample's weight"
    no_matches = found((50, 80, 100, 0, 0, 0, 0), (30, 90, 100, 0, 0, 0, 0))
    assert (no_matches["estimated_accuracy"], no_matches["estimated_accuracy_stderr"]) == (0.85, 1.0)


def test_estimate_of_a_model_that_predicts_one_class_is_not_optimistic() -> None:
    # It is right on all samples of that class, a tenth of the clients'; it predicts theirs so too.
    same = summary(*[ValidationCounts(10, 10, 100, 10, 10, 10, 100)] * 9).metrics(1.0, False)
    assert same["estimated_accuracy"] == pytest.approx(0.1)
    # A server with that class only, and a model that separates the clients' samples.
    other = summary(*[ValidationCounts(80, 80, 100, 10, 10, 10, 10)] * 9).metrics(1.0, False)
    assert other["estimated_accuracy"] == pytest.approx(1.0)
    assert other["estimated_accuracy_stderr"] == pytest.approx(math.hypot(1 / 91, 0.2 * 0.2))


def test_weights_change_neither_share() -> None:
    votes = [(9.0, 5.0, 10.0), (8.0, 5.0, 10.0), (9.0, 4.0, 10.0)]
    first = summary(*(plain(*one) for one in votes))
    second = summary(*(ValidationCounts(*one, 1.0, 8.0, 8.0, 0.0) for one in votes))
    assert first.gain() == second.gain()
    assert first.prediction_share() == second.prediction_share() == 0.0
    assert first.broadcast_share() == second.broadcast_share() == 0.0


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
    sent["validation/class_frequencies"] = torch.full((3,), 1 / 3, dtype=torch.float64)
    again = validating.train_client(model, replace(task, round=1, payload=sent))
    counts = ValidationCounts.from_tensor(again.payload[COUNTS])
    assert counts is not None
    assert counts.base_correct == counts.refined_correct, "both candidates are the same model"
    assert counts.samples == 2


def test_broadcast_class_frequencies_are_those_of_the_targets() -> None:
    server, updates, state = server_setup()
    mrtf = MrTF(settings(client_validation=True, target_smoothing=0.5))
    after, report = mrtf.server_update(state, updates, mrtf.aggregate(updates), server)
    sent = mrtf.client_payload(replace(after, round=7), 4)
    frequencies = torch.as_tensor(sent["validation/class_frequencies"])
    assert torch.equal(frequencies, predicted_class_frequencies(report.predictions["targets"]))
    memory = mrtf.skip_round(after).memory
    assert torch.equal(memory["validation/class_frequencies"], frequencies)
    assert equal(mrtf.skip_round(after).prediction_weights, after.prediction_weights)
