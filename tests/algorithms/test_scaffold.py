"""Scaffold compared with an independent implementation in double precision, with partial participation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mrtf_fedml.algorithms import (
    Algorithm,
    ClientTask,
    ClientUpdate,
    FedAvg,
    MeasuredScaffold,
    Scaffold,
    ServerContext,
    ServerState,
)
from mrtf_fedml.algorithms.types import as_tensors
from mrtf_fedml.config import RunSettings
from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureExtractor
from mrtf_fedml.training import checkpoints

CLIENTS, LEARNING_RATE = 4, 0.1
SCHEDULE = [[0, 1], [1, 2], [0, 2], [1, 3]]


def settings(**keys: Any) -> RunSettings:
    given = {
        "client_num_in_total": CLIENTS,
        "client_num_per_round": 2,
        "learning_rate": LEARNING_RATE,
        "weight_decay": 0.0,
        "epochs": 2,
        **keys,
    }
    return RunSettings.from_config({"train_args": given})


def data(client: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(client)
    return [
        (torch.randn(size, 3, generator=generator) + client, torch.randint(2, (size,), generator=generator))
        for size in (4, 2)
    ]


def start() -> dict[str, Tensor]:
    return {"weight": torch.tensor([[0.1, -0.2, 0.3], [0.0, 0.5, -0.5]]), "bias": torch.zeros(2)}


def run(
    algorithm: Algorithm,
    rounds: list[list[int]] = SCHEDULE,
    state: ServerState | None = None,
    save: Callable[[ServerState], ServerState] = lambda state: state,
) -> ServerState:
    model = nn.Linear(3, 2)
    inputs = torch.zeros(4, 3)
    server = ServerContext(model, inputs, FeatureExtractor(model, None, inputs[:2]), 2)
    state = state or algorithm.init_state(start())
    for chosen in rounds:
        updates = [
            algorithm.train_client(
                model,
                ClientTask(k, state.round, state.weights, data(k), 6, as_tensors(algorithm.client_payload(state, k))),
            )
            for k in chosen
        ]
        state, _ = algorithm.server_update(state, updates, algorithm.aggregate(updates), server)
        state = save(state)
    return state


def gradient(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Of the mean cross-entropy of a linear model [C, D + 1], worked out."""
    x = torch.cat([x.double(), torch.ones(len(x), 1, dtype=torch.float64)], dim=1)
    errors = torch.softmax(x @ theta.T, dim=1) - nn.functional.one_hot(y, 2)
    return errors.T @ x / len(x)


def independent(option: int, momentum: float, measured: bool = False) -> tuple[Tensor, Tensor, Tensor, list[float]]:
    """Algorithm 1 of the paper with global step 1: x, c and all c_i at the end, and the coefficient of each round.

    The correction is multiplied by the coefficient, which is 1 unless it is measured. A client's own gradients are its
    total step minus the correction.
    """
    x = torch.cat([start()["weight"], start()["bias"][:, None]], dim=1).double()
    c, own = torch.zeros_like(x), torch.zeros(CLIENTS, *x.shape, dtype=torch.float64)
    b = p = 1.0
    coefficients = []
    for chosen in SCHEDULE:
        share = b * p if measured else 1.0
        coefficients.append(share)
        delta_y, delta_c = torch.zeros_like(x), torch.zeros_like(x)
        products = torch.zeros(4, dtype=torch.float64)
        for i in chosen:
            y, velocity, steps = x.clone(), torch.zeros_like(x), 0
            for _ in range(2):
                for inputs, labels in data(i):
                    velocity = momentum * velocity + gradient(y, inputs, labels) + share * (c - own[i])
                    y = y - LEARNING_RATE * velocity
                    steps += 1
            if option == 1:
                inputs, labels = (torch.cat(parts) for parts in zip(*data(i), strict=True))
                new = gradient(x, inputs, labels)
            else:
                new = share * (own[i] - c) + (x - y) / (steps * LEARNING_RATE / (1 - momentum))
            if own[i].any():
                first, away = gradient(x, *data(i)[0]), own[i] - c
                products += torch.stack(
                    [(new * own[i]).sum(), own[i].square().sum(), (first * away).sum(), away.square().sum()]
                )
            delta_y += (y - x) / len(chosen)
            delta_c += (new - own[i]) / len(chosen)
            own[i] = new
        if products.any():
            b = (b + float((products[0] / products[1]).clamp(0, 1))) / 2
            p = (p + float((products[2] / products[3]).clamp(0, 1))) / 2
        x = x + delta_y
        c = c + len(chosen) / CLIENTS * delta_c
    return x, c, own, coefficients


def join_layers(tensors: dict[str, Tensor] | Any, prefix: str = "") -> Tensor:
    return torch.cat([tensors[f"{prefix}weight"], tensors[f"{prefix}bias"][:, None]], dim=1).double()


@pytest.mark.parametrize("option", [1, 2])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_scaffold_follows_algorithm_1(option: int, momentum: float) -> None:
    state = run(Scaffold(settings(scaffold_option=option, momentum=momentum)))
    x, c, own, _ = independent(option, momentum)
    torch.testing.assert_close(join_layers(state.weights), x, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(join_layers(state.memory, "server/"), c, atol=1e-5, rtol=1e-4)
    for client in range(CLIENTS):
        torch.testing.assert_close(join_layers(state.memory, f"{client}/"), own[client], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("option", [1, 2])
def test_measured_scaffold_follows_algorithm_1_with_measured_coefficient(option: int) -> None:
    state = run(MeasuredScaffold(settings(scaffold_option=option)))
    x, c, own, coefficients = independent(option, 0.9, measured=True)
    assert coefficients[-1] < 0.95, "the coefficient must matter in this schedule"
    torch.testing.assert_close(join_layers(state.weights), x, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(join_layers(state.memory, "server/"), c, atol=1e-5, rtol=1e-4)
    for client in range(CLIENTS):
        torch.testing.assert_close(join_layers(state.memory, f"{client}/"), own[client], atol=1e-5, rtol=1e-4)


class ReturnsCorrection(MeasuredScaffold):
    """Its clients are at rest on the correction: a variate that reproduces itself, without a gradient at theta_t."""

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        update = super().train_client(model, task)
        if not task.payload:
            return update
        coefficient = float(task.payload["scaffold/coefficient"])
        variate = {name: -coefficient * task.payload[name] for name in start()}
        return replace(update, payload={**variate, "scaffold/first_gradient": torch.tensor(0.0, dtype=torch.float64)})


def test_measured_coefficient_goes_to_zero_where_variates_only_reproduce_themselves() -> None:
    algorithm = ReturnsCorrection(settings())
    state = run(algorithm, [[0, 1]] * 10)
    assert float(algorithm.client_payload(state, 0)["scaffold/coefficient"]) < 0.01
    assert float(MeasuredScaffold(settings()).client_payload(run(Scaffold(settings())), 0)["scaffold/coefficient"]) == 1


def test_measured_scaffold_first_round_equals_fedavg_bitwise() -> None:
    measured, plain = run(MeasuredScaffold(settings()), SCHEDULE[:1]), run(FedAvg(settings()), SCHEDULE[:1])
    assert all(torch.equal(measured.weights[key], plain.weights[key]) for key in plain.weights)


def test_measured_scaffold_refuses_measurement_that_is_no_number() -> None:
    algorithm, state = MeasuredScaffold(settings()), run(MeasuredScaffold(settings()))
    for value in (torch.zeros(2), torch.tensor(1)):
        update = ClientUpdate(0, 6, state.weights, 0.1, {"scaffold/first_gradient": value})
        assert "scaffold/first_gradient" in str(algorithm.validate_update(state, update))


@pytest.mark.parametrize("measured", [1e30, -1e30])
def test_measured_coefficient_stays_between_fedavg_and_scaffold(measured: float) -> None:
    algorithm = MeasuredScaffold(settings())
    state = run(algorithm, SCHEDULE[:1])
    model = nn.Linear(3, 2)
    server = ServerContext(model, torch.zeros(4, 3), FeatureExtractor(model, None, torch.zeros(2, 3)), 2)
    task = ClientTask(0, 1, state.weights, data(0), 6, as_tensors(algorithm.client_payload(state, 0)))
    update = algorithm.train_client(model, task)
    update = replace(update, payload={**update.payload, "scaffold/first_gradient": torch.tensor(measured)})
    after, _ = algorithm.server_update(state, [update], algorithm.aggregate([update]), server)
    assert 0 <= float(algorithm.client_payload(after, 0)["scaffold/coefficient"]) <= 1


def test_scaffold_momentum_false_equals_momentum_zero() -> None:
    without = run(Scaffold(settings(scaffold_momentum=False)))
    assert torch.equal(without.weights["weight"], run(Scaffold(settings(momentum=0.0))).weights["weight"])


def test_scaffold_option_2_variate_equals_value_by_hand() -> None:
    """c_k = (theta_t - theta_k) / (steps * lr) - (c - c_k): here c - c_k is 0.5 everywhere."""
    algorithm = Scaffold(settings(momentum=0.0, epochs=1))
    model = nn.Linear(3, 2)
    correction = {key: torch.full_like(value, 0.5) for key, value in start().items()}
    update = algorithm.train_client(model, ClientTask(0, 0, start(), data(0), 6, correction))
    by_hand = (start()["bias"] - update.weights["bias"]) / (2 * 0.1) - 0.5
    torch.testing.assert_close(update.payload["bias"], by_hand)


class HeldAtZero(Scaffold):
    """Scaffold whose clients report variates of zero, which the server then sends."""

    def train_client(self, *args: Any, **keys: Any) -> ClientUpdate:
        update = super().train_client(*args, **keys)
        return replace(update, payload={key: torch.zeros_like(value) for key, value in update.payload.items()})


@pytest.mark.parametrize("option", [1, 2])
def test_scaffold_with_zero_variates_equals_fedavg_bitwise(option: int) -> None:
    held, plain = run(HeldAtZero(settings(scaffold_option=option))), run(FedAvg(settings()))
    assert all(torch.equal(held.weights[key], plain.weights[key]) for key in plain.weights)
    assert held.memory
    assert not any(value.any() for value in held.memory.values())


def test_scaffold_keeps_the_variate_of_an_absent_client() -> None:
    before, after = run(Scaffold(settings()), SCHEDULE[:1]), run(Scaffold(settings()), SCHEDULE[:2])
    assert torch.equal(before.memory["0/bias"], after.memory["0/bias"])
    assert not torch.equal(before.memory["1/bias"], after.memory["1/bias"])
    assert "2/bias" not in before.memory


def test_adam_clients_are_refused() -> None:
    with pytest.raises(UserError, match="set it to sgd"):
        Scaffold(settings(client_optimizer="adam"))


@pytest.mark.parametrize("algorithm", [Scaffold, MeasuredScaffold])
@pytest.mark.parametrize("factor", [1.0, -1.0, -8.0])
def test_variate_that_contradicts_the_update_is_rejected(algorithm: type[Scaffold], factor: float) -> None:
    rules, model = algorithm(settings()), nn.Linear(3, 2)
    state = run(rules)
    for client in range(CLIENTS):
        payload = as_tensors(rules.client_payload(state, client))
        update = rules.train_client(model, ClientTask(client, 4, state.weights, data(client), 6, payload))
        lie = {name: factor * value if name in state.weights else value for name, value in update.payload.items()}
        reason = rules.validate_update(state, replace(update, payload=as_tensors(lie)))
        assert (reason is None) == (factor == 1.0), client
    assert algorithm(settings(scaffold_option=1)).validate_update(state, replace(update, payload={})) is None


def test_run_resumed_from_variates_on_disk_equals_uninterrupted_run_bitwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_MAX_SINGLE_FILE_MEMORY", 0)
    algorithm, written = MeasuredScaffold(settings()), checkpoints.Checkpoints(tmp_path)
    run(algorithm, SCHEDULE[:3], save=lambda state: written.save(state, keep=2))
    assert len(list((tmp_path / "memory").iterdir())) > CLIENTS
    resumed = checkpoints.Checkpoints(tmp_path)
    ended = run(algorithm, SCHEDULE[3:], resumed.load(), save=lambda state: resumed.save(state, keep=2))
    whole = run(algorithm)
    assert list(ended.memory) == list(whole.memory)
    for one, other in ((ended.weights, whole.weights), (ended.memory, whole.memory)):
        assert all(torch.equal(torch.as_tensor(one[name]), torch.as_tensor(value)) for name, value in other.items())
