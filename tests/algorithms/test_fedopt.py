"""FedOpt's server, against numbers worked by hand and a few lines of NumPy over several rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms import Algorithm, ClientUpdate, FedAvg, FedOpt, ServerContext, ServerState
from mrtf_fedml.config import RunSettings
from mrtf_fedml.models import FeatureExtractor

KEYS = ("0.weight", "0.bias")


def server() -> ServerContext:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    inputs = torch.zeros(4, 2)
    return ServerContext(model, inputs, FeatureExtractor(model, None, inputs[:2]), 3)


def weights(value: float) -> dict[str, torch.Tensor]:
    state = server().model.state_dict()
    return {key: torch.full_like(tensor, value if tensor.is_floating_point() else 4) for key, tensor in state.items()}


def algorithm(kind: type[Algorithm] = FedOpt, **keys: Any) -> Algorithm:
    return kind(RunSettings.from_config({"train_args": keys}))


def rounds(rule: Algorithm, means: list[float], start: float = 1.0) -> tuple[list[float], ServerState]:
    """One parameter's path, where the clients' mean is given for each round."""
    state = rule.init_state(weights(start))
    path = []
    for mean in means:
        updates = [ClientUpdate(0, 1, weights(mean), 0.5)]
        state, _ = rule.server_update(state, updates, rule.aggregate(updates), server())
        path.append(float(state.weights[KEYS[0]][0, 0]))
        assert torch.equal(state.prediction_weights[KEYS[1]], state.weights[KEYS[1]])
        assert float(state.weights["1.running_var"][0]) == pytest.approx(mean), "statistics are averaged, not optimised"
    return path, state


def test_server_sgd_with_rate_one_is_fedavg_to_the_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    rule, plain = algorithm(server_lr=1.0, server_momentum=0.0), algorithm(FedAvg)
    first = {key: torch.rand(value.shape, generator=generator) for key, value in weights(0.0).items()}
    updates = [
        ClientUpdate(k, 1, {key: torch.rand(value.shape, generator=generator) for key, value in first.items()}, None)
        for k in range(3)
    ]
    for before in (rule.init_state(first), plain.init_state(first)):
        ours, _ = rule.server_update(before, updates, rule.aggregate(updates), server())
        theirs, _ = plain.server_update(before, updates, plain.aggregate(updates), server())
        assert all(torch.equal(ours.weights[key], theirs.weights[key]) for key in first)
        assert not ours.memory


def test_momentum_by_hand() -> None:
    """m = 0.5; then theta = 1 + 0.1 * 0.5 = 1.05, m = 0.9 * 0.5 + (2 - 1.05) = 1.4, theta = 1.05 + 0.14."""
    path, _ = rounds(algorithm(server_lr=0.1), [1.5, 2.0])
    assert path == pytest.approx([1.05, 1.19])


def test_one_adam_step_by_hand() -> None:
    """Delta = 0.5: m = 0.05, v = 0.99e-6 + 0.0025, so the step is 0.1 * 0.05 / (0.050009899 + 0.001)."""
    path, _ = rounds(algorithm(server_optimizer="adam", server_lr=0.1), [1.5])
    assert path == pytest.approx([1.0 + 0.1 * 0.05 / (np.sqrt(0.99e-6 + 0.0025) + 0.001)], rel=1e-6)


@pytest.mark.parametrize("optimizer", ["adam", "yogi", "adagrad"])
def test_adaptive_rounds_follow_algorithm_2(optimizer: str) -> None:
    means = [1.5, 1.1, 0.4, 0.45]
    x, m, v = 1.0, 0.0, 0.001**2
    expected = []
    for mean in means:
        delta = mean - x
        m = 0.8 * m + 0.2 * delta
        v = {
            "adagrad": v + delta**2,
            "yogi": v - 0.05 * delta**2 * np.sign(v - delta**2),
            "adam": 0.95 * v + 0.05 * delta**2,
        }[optimizer]
        x = x + 0.03 * m / (np.sqrt(v) + 0.001)
        expected.append(x)
    rule = algorithm(server_optimizer=optimizer, server_lr=0.03, server_momentum=0.8, server_beta2=0.95)
    path, state = rounds(rule, means)
    assert path == pytest.approx(expected, rel=1e-5)
    assert state.weights["1.num_batches_tracked"].dtype == torch.int64
    assert len(state.memory) == 2 * 4, "two moments a parameter: weight and bias of either layer"


def test_tied_parameters_move_together() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    inputs = torch.zeros(4, 2)
    tied = ServerContext(model, inputs, FeatureExtractor(model, None, inputs[:2]), 2)
    old = {key: torch.zeros_like(value) for key, value in model.state_dict().items()}
    mean = {key: torch.ones_like(value) for key, value in old.items()}
    rule = algorithm(server_lr=0.5, server_momentum=0.0)
    state, _ = rule.server_update(rule.init_state(old), [ClientUpdate(0, 1, mean, None)], mean, tied)
    assert all(torch.equal(value, torch.full_like(value, 0.5)) for value in state.weights.values())
