"""Momentum of the base's server step, against numbers computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mrtf_fedml.algorithms import ClientUpdate, FedAvg, MeasuredScaffold, ServerContext, ServerState
from mrtf_fedml.algorithms.base import Algorithm
from mrtf_fedml.algorithms.mrtf.loss_momentum import LossMomentum, momentum_coefficient
from mrtf_fedml.config import RunSettings
from mrtf_fedml.models import FeatureExtractor
from mrtf_fedml.training import checkpoints

CLASSES = 3
OFFSET = 100.0


def server() -> ServerContext:
    model = nn.Sequential(nn.Linear(2, CLASSES), nn.BatchNorm1d(CLASSES))
    inputs = torch.zeros(4, 2)
    return ServerContext(model, inputs, FeatureExtractor(model, None, inputs[:2]), CLASSES)


def weights(value: float) -> dict[str, Tensor]:
    """All entries are 100 + value, so that steps of a few units are far below 0.15 of the weights' norm."""
    state = server().model.state_dict()
    return {
        key: torch.full_like(tensor, OFFSET + value if tensor.is_floating_point() else 4)
        for key, tensor in state.items()
    }


def momentum(base: type[Algorithm] = FedAvg) -> LossMomentum:
    return LossMomentum(base(RunSettings.from_config({})))


def one_round(
    algorithm: Algorithm, state: ServerState, mean: float, relative_loss: float | None
) -> tuple[ServerState, float | None]:
    """The state after a round whose clients have this mean and loss, and the momentum that was reported."""
    loss = None if relative_loss is None else relative_loss * math.log(CLASSES)
    updates = [ClientUpdate(0, 1, weights(mean), loss)]
    state, report = algorithm.server_update(state, updates, algorithm.aggregate(updates), server())
    return state, report.metrics.get("server_momentum")


def test_rounds_follow_the_formula_by_hand() -> None:
    """Relative losses 1, 0.25, 0, 0.5 and none give beta 0.9, 0.45, 0, 0.9 and 0."""
    algorithm = momentum()
    state = algorithm.init_state(weights(1.0))
    theta, m = 1.0, 0.0
    for mean, loss, beta in ((2.0, 1.0, 0.9), (3.0, 0.25, 0.45), (2.5, 0.0, 0.0), (5.0, 0.5, 0.9), (4.0, None, 0.0)):
        m = beta * m + (mean - theta)
        theta += m
        state, reported = one_round(algorithm, state, mean, loss)
        assert reported == pytest.approx(beta)
        assert float(state.weights["0.weight"][0, 0]) == pytest.approx(OFFSET + theta, rel=1e-6)
        assert state.prediction_weights is state.weights


def test_first_round_is_the_base_bitwise_and_later_statistics_are_the_base_values() -> None:
    algorithm, plain = momentum(), FedAvg(RunSettings.from_config({}))
    start = algorithm.init_state(weights(0.3))
    ours, theirs = one_round(algorithm, start, 0.7, 1.0)[0], one_round(plain, start, 0.7, 1.0)[0]
    assert all(torch.equal(ours.weights[key], theirs.weights[key]) for key in theirs.weights)
    later = one_round(algorithm, ours, 1.5, 1.0)[0].weights
    assert float(later["1.running_var"][0]) == OFFSET + 1.5
    assert later["1.num_batches_tracked"].dtype == torch.int64
    assert float(later["0.bias"][0]) == pytest.approx(OFFSET + 1.5 + 0.9 * 0.4)


def test_base_keeps_its_own_memory_and_does_not_receive_the_momentum() -> None:
    algorithm = momentum(MeasuredScaffold)
    update = ClientUpdate(0, 1, weights(0.5), 0.1, {"0.bias": torch.ones(CLASSES)})
    state, _ = algorithm.server_update(algorithm.init_state(weights(0.0)), [update], update.weights, server())
    own = {name for name in state.memory if name.startswith("momentum/")}
    assert own == {f"momentum/{name}" for name, _ in server().model.named_parameters()}
    assert "0/0.bias" in state.memory, "the variate"
    assert not own & set(algorithm.inner_state(state).memory)
    assert own <= set(algorithm.skip_round(state).memory), "a round without updates keeps it"


def test_run_resumed_from_disk_equals_uninterrupted_run_bitwise(tmp_path: Path) -> None:
    algorithm = momentum()
    straight = resumed = algorithm.init_state(weights(0.1))
    for mean in (0.37, 0.91, 0.22):
        straight, _ = one_round(algorithm, straight, mean, 0.4)
        resumed, _ = one_round(algorithm, resumed, mean, 0.4)
        checkpoints.Checkpoints(tmp_path).save(resumed, keep=1)
        resumed = checkpoints.Checkpoints(tmp_path).load()
    assert resumed.memory.keys() == straight.memory.keys()
    assert all(torch.equal(straight.weights[key], resumed.weights[key]) for key in straight.weights)


@pytest.mark.parametrize(
    ("first", "second", "theta", "beta"),
    [(12.0, 1.0, 123.8, 0.9), (12.0, 8.0, 128.8, 8.8 / 12), (20.0, 20.0, 140.0, 0.0), (20.0, -19.0, 119.0, 0.9)],
)
def test_momentum_lengthens_a_step_to_at_most_015_of_the_weights_norm(
    first: float, second: float, theta: float, beta: float
) -> None:
    """From 112 to at most 128.8; from 120 the base's own step of 20 is longer than 18, and -19 is shortened by m."""
    algorithm = momentum()
    state, _ = one_round(algorithm, algorithm.init_state(weights(0.0)), first, 1.0)
    state, reported = one_round(algorithm, state, first + second, 1.0)
    assert float(state.weights["0.weight"][0, 0]) == pytest.approx(theta)
    assert reported == pytest.approx(beta)


def test_tied_parameters_move_together() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    inputs = torch.zeros(4, 2)
    tied = ServerContext(model, inputs, FeatureExtractor(model, None, inputs[:2]), 2)
    algorithm = momentum()
    state = algorithm.init_state({key: torch.full_like(value, OFFSET) for key, value in model.state_dict().items()})
    for value in (OFFSET + 1.0, OFFSET + 2.0):
        mean = {key: torch.full_like(tensor, value) for key, tensor in state.weights.items()}
        state, _ = algorithm.server_update(state, [ClientUpdate(0, 1, mean, 9.0)], mean, tied)
    assert all(torch.allclose(value, torch.tensor(OFFSET + 2.9)) for value in state.weights.values())
    assert torch.equal(state.weights["0.weight"], state.weights["1.weight"])


def test_round_with_an_opposed_update_has_no_momentum() -> None:
    honest = [ClientUpdate(client, 1, weights(2.0), math.log(CLASSES)) for client in range(3)]
    for marks, beta in (({}, 0.9), ({"is_outlier": True}, 0.9), ({"is_opposed": True}, 0.0)):
        marked = [*honest[:2], replace(honest[2], **marks)]
        assert momentum_coefficient(marked, CLASSES) == pytest.approx(beta)


def test_shortened_updates_are_in_the_step_but_not_in_the_momentum() -> None:
    """Means 2 and 2, with a shortened update of 5: the step leads to 3, and the next round repeats the step to 2."""
    algorithm = momentum()
    updates = [ClientUpdate(client, 1, weights(value), 9.0) for client, value in enumerate((2.0, 2.0, 5.0))]
    updates[2] = replace(updates[2], is_outlier=True)
    start = algorithm.init_state(weights(1.0))
    state, _ = algorithm.server_update(start, updates, algorithm.aggregate(updates), server())
    assert float(state.weights["0.bias"][0]) == pytest.approx(OFFSET + 3.0)
    after, beta = one_round(algorithm, state, 4.0, 1.0)
    assert beta == pytest.approx(0.9)
    assert float(after.weights["0.bias"][0]) == pytest.approx(OFFSET + 4.0 + 0.9 * (2.0 - 1.0))
    opposed = [replace(updates[0], is_opposed=True), *updates[1:]]
    state, _ = algorithm.server_update(start, opposed, algorithm.aggregate(opposed), server())
    after, _ = one_round(algorithm, state, 4.0, 1.0)
    assert float(after.weights["0.bias"][0]) == pytest.approx(OFFSET + 4.0 + 0.9 * (3.0 - 1.0))


def test_shortened_updates_alone_or_with_promised_privacy_add_nothing_to_the_momentum() -> None:
    """A mean without them would lack the noise that was added to the mean of all."""
    private = LossMomentum(FedAvg(RunSettings.from_config({"dp_args": {"clip": 1.0, "sigma": 1.0}})))
    shortened = [ClientUpdate(client, 1, weights(2.0), 9.0, is_outlier=True) for client in range(2)]
    for algorithm, updates in (
        (momentum(), shortened),
        (private, [replace(shortened[0], is_outlier=False), *shortened]),
    ):
        state = algorithm.init_state(weights(1.0))
        state, _ = algorithm.server_update(state, updates, algorithm.aggregate(updates), server())
        after, _ = one_round(algorithm, state, 4.0, 1.0)
        assert float(after.weights["0.bias"][0]) == pytest.approx(OFFSET + 4.0)
