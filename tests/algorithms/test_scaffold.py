"""Scaffold compared with an independent implementation in double precision, with partial participation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mrtf_fedml.algorithms import (
    Algorithm,
    ClientTask,
    ClientUpdate,
    FadingScaffold,
    FedAvg,
    Scaffold,
    ServerContext,
    ServerState,
)
from mrtf_fedml.config import RunSettings
from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureExtractor

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


def run(algorithm: Algorithm, rounds: list[list[int]] = SCHEDULE) -> ServerState:
    model = nn.Linear(3, 2)
    inputs = torch.zeros(4, 3)
    server = ServerContext(model, inputs, FeatureExtractor(model, None, inputs[:2]), 2)
    state = algorithm.init_state(start())
    for round_index, chosen in enumerate(rounds):
        updates = [
            algorithm.train_client(
                model, ClientTask(k, round_index, state.weights, data(k), 6, algorithm.client_payload(state, k))
            )
            for k in chosen
        ]
        state, _ = algorithm.server_update(state, updates, algorithm.aggregate(updates), server)
    return state


def gradient(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Of the mean cross-entropy of a linear model [C, D + 1], worked out."""
    x = torch.cat([x.double(), torch.ones(len(x), 1, dtype=torch.float64)], dim=1)
    errors = torch.softmax(x @ theta.T, dim=1) - nn.functional.one_hot(y, 2)
    return errors.T @ x / len(x)


def independent(option: int, momentum: float, half_life: float = float("inf")) -> tuple[Tensor, Tensor, Tensor]:
    """Algorithm 1 of the paper with global step 1: x, c and all c_i at the end; the correction fades by 2^(-t / H).

    A client's own gradients are its total step minus the correction.
    """
    x = torch.cat([start()["weight"], start()["bias"][:, None]], dim=1).double()
    c, own = torch.zeros_like(x), torch.zeros(CLIENTS, *x.shape, dtype=torch.float64)
    for round_index, chosen in enumerate(SCHEDULE):
        share = 2.0 ** (-round_index / half_life)
        delta_y, delta_c = torch.zeros_like(x), torch.zeros_like(x)
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
            delta_y += (y - x) / len(chosen)
            delta_c += (new - own[i]) / len(chosen)
            own[i] = new
        x = x + delta_y
        c = c + len(chosen) / CLIENTS * delta_c
    return x, c, own


def join_layers(tensors: dict[str, Tensor] | Any, prefix: str = "") -> Tensor:
    return torch.cat([tensors[f"{prefix}weight"], tensors[f"{prefix}bias"][:, None]], dim=1).double()


@pytest.mark.parametrize("option", [1, 2])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_scaffold_follows_algorithm_1(option: int, momentum: float) -> None:
    state = run(Scaffold(settings(scaffold_option=option, momentum=momentum)))
    x, c, own = independent(option, momentum)
    torch.testing.assert_close(join_layers(state.weights), x, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(join_layers(state.memory, "server/"), c, atol=1e-5, rtol=1e-4)
    for client in range(CLIENTS):
        torch.testing.assert_close(join_layers(state.memory, f"{client}/"), own[client], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("option", [1, 2])
def test_fading_scaffold_follows_algorithm_1_with_fading_correction(option: int) -> None:
    state = run(FadingScaffold(settings(scaffold_option=option, scaffold_half_life=2.0)))
    x, c, own = independent(option, 0.9, half_life=2.0)
    torch.testing.assert_close(join_layers(state.weights), x, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(join_layers(state.memory, "server/"), c, atol=1e-5, rtol=1e-4)
    for client in range(CLIENTS):
        torch.testing.assert_close(join_layers(state.memory, f"{client}/"), own[client], atol=1e-5, rtol=1e-4)


def test_fading_scaffold_payload_equals_values_by_hand() -> None:
    """Half of it after `scaffold_half_life` rounds, a quarter after twice as many."""
    algorithm, plain = FadingScaffold(settings(scaffold_half_life=20.0)), Scaffold(settings())
    state = run(plain)
    for round_index, share in ((0, 1.0), (20, 0.5), (40, 0.25)):
        sent = algorithm.client_payload(replace(state, round=round_index), 1)
        whole = plain.client_payload(state, 1)
        assert whole["bias"].any()
        assert all(torch.equal(sent[name], share * value) for name, value in whole.items())


def test_fading_scaffold_rejects_half_life_of_zero() -> None:
    with pytest.raises(UserError, match="scaffold_half_life is 0"):
        FadingScaffold(settings(scaffold_half_life=0))


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
