"""FedML's attacks and defences act on our rounds as its source says they do, to the number."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mrtf_fedml import FedAvgAggregator, MrTFAggregator
from mrtf_fedml.fedml_bridge.messages import LOSS, weights_of
from mrtf_fedml.training import outliers
from tests.conftest import read_metrics
from tests.fedml_bridge.four_clients import (
    CLIENTS,
    SAMPLES,
    SHARES,
    ListeningFedAvg,
    ListeningMrTF,
    Weights,
    all_entries,
    assert_close,
    average,
    federation,
    plain_net,
    run_one_round,
    server,
)
from tests.fedml_bridge.payloads import with_loss
from tests.fedml_bridge.test_adapters import Net, one_round
from tests.fedml_bridge.test_plugin import project

pytestmark = pytest.mark.usefixtures("harmless_afterwards")


def is_weight(key: str) -> bool:
    """FedML's attacks and defences take BatchNorm's statistics for no weights."""
    return not key.endswith(("running_mean", "running_var", "num_batches_tracked"))


def distance(weights: Weights, start: Weights) -> float:
    parts = [(weights[key] - start[key]).double().flatten() for key in start if is_weight(key)]
    return float(torch.cat(parts).norm())


def attack(mode: str, message: Weights, start: Weights) -> Weights:
    """What FedML's byzantine attack makes of a client's message; the loss is no weight and stays."""
    changed = OrderedDict(message)
    for key, value in weights_of(message).items():
        if is_weight(key):
            changed[key] = {
                "zero": lambda value=value: torch.zeros_like(value),
                "flip": lambda value=value, key=key: start[key] + (start[key] - value),
                "random": lambda value=value: torch.from_numpy(2 * np.random.random_sample(value.shape) - 1).float(),
            }[mode]()
    return changed


@pytest.mark.parametrize("kind", [FedAvgAggregator, MrTFAggregator], ids=["FedAvg", "MrTF"])
@pytest.mark.parametrize("mode", ["zero", "flip", "random"])
def test_attack_changes_the_stated_number_of_clients(tmp_path: Path, kind: type, mode: str) -> None:
    net, start, messages = federation(Net)
    random.seed(7)
    np.random.seed(8)
    byzantine = random.sample(CLIENTS, 2)
    expected = [
        (samples, attack(mode, message, start) if client in byzantine else message)
        for client, (samples, message) in enumerate(messages)
    ]
    quiet = server(kind, tmp_path, net)
    _, _, unattacked = one_round(quiet, CLIENTS, expected)
    net.load_state_dict(start)
    options = {"enable_attack": True, "attack_type": "byzantine", "attack_mode": mode, "byzantine_client_num": 2}
    under_attack = server(kind, tmp_path, net, **options)
    random.seed(7)
    np.random.seed(8)
    entries, aggregated, following = one_round(under_attack, CLIENTS, messages)
    for (_, entry), (_, message) in zip(entries, expected, strict=True):
        assert all(torch.equal(entry[key], message[key]) for key in entry)
    assert_close(aggregated, average([weights_of(message) for _, message in expected], SHARES))
    # The refinery's teachers are the attacked models: the round is that of clients who really send them.
    assert all(torch.equal(following[key], unattacked[key]) for key in following)


@pytest.mark.parametrize(
    ("kind", "make"), [(FedAvgAggregator, Net), (MrTFAggregator, plain_net)], ids=["FedAvg", "MrTF"]
)
def test_norm_clipping_defence_bounds_each_update_before_averaging(
    tmp_path: Path, kind: type, make: Callable[[], nn.Module]
) -> None:
    """For MrTF without BatchNorm: a bias before it has no gradient, and Adam makes steps of what rounding leaves."""
    net, start, messages = federation(make)
    distances = [distance(message, start) for _, message in messages]
    bound = (distances[1] + distances[2]) / 2
    expected = []
    for (_, message), far in zip(messages, distances, strict=True):
        clipped = weights_of(message)
        for key in filter(is_weight, start):
            clipped[key] = (start[key].double() + (message[key] - start[key]).double() * min(1, bound / far)).float()
        expected.append(clipped)
    quiet = server(kind, tmp_path, net)
    losses = [float(message[LOSS]) for _, message in messages]
    clipped_messages = [
        (samples, with_loss(weights, loss)) for samples, weights, loss in zip(SAMPLES, expected, losses, strict=True)
    ]
    _, _, unguarded = one_round(quiet, CLIENTS, clipped_messages)
    net.load_state_dict(start)
    options = {"enable_defense": True, "defense_type": "norm_diff_clipping", "norm_bound": bound}
    entries, aggregated, following = one_round(server(kind, tmp_path, net, **options), CLIENTS, messages)
    assert [distance(entry, start) for _, entry in entries] == pytest.approx([*distances[:2], bound, bound], rel=1e-5)
    assert_close(aggregated, average(expected, SHARES))
    # The teachers, too, are the clipped models.
    assert_close(
        following, OrderedDict((key, unguarded[key]) for key in unguarded if unguarded[key].is_floating_point())
    )


def test_median_defence_replaces_the_average(tmp_path: Path) -> None:
    net, _, messages = federation(plain_net)
    aggregator = server(FedAvgAggregator, tmp_path, net, enable_defense=True, defense_type="wise_median")
    _, aggregated, following = one_round(aggregator, CLIENTS, messages)
    for key, value in aggregated.items():
        # Of four values torch.median takes the second.
        second = torch.stack([message[key] for _, message in messages]).sort(dim=0).values[1]
        assert torch.equal(value, second), key
        assert torch.equal(following[key], second), key


def test_defence_after_aggregation_clips_the_global_model(tmp_path: Path) -> None:
    """CRFL, in a last round, which it leaves without noise."""
    net, _, messages = federation(plain_net)
    mean = average([weights_of(message) for _, message in messages], SHARES)
    threshold = 0.5 * float(all_entries(mean).norm())
    options = {"enable_defense": True, "defense_type": "crfl", "clip_threshold": threshold, "comm_round": 1}
    _, aggregated, following = one_round(server(FedAvgAggregator, tmp_path, net, **options), CLIENTS, messages)
    assert_close(aggregated, mean)
    assert_close(following, OrderedDict((key, value / 2) for key, value in mean.items()))


ATTACK = {"enable_attack": True, "attack_type": "byzantine", "attack_mode": "zero", "byzantine_client_num": 1}
DEFENCE = {"enable_defense": True, "defense_type": "norm_diff_clipping", "norm_bound": 0.05}


def shares_and_models(messages: list[tuple[int, Weights]]) -> tuple[list[float], list[Weights]]:
    total = sum(samples for samples, _ in messages)
    return [samples / total for samples, _ in messages], [weights_of(message) for _, message in messages]


def test_run_with_attack_averages_one_model_of_zeros(tmp_path: Path) -> None:
    _, final, aggregator = run_one_round(tmp_path / "run", ListeningFedAvg, **ATTACK)
    shares, models = shares_and_models(aggregator.received)
    fits = []
    for byzantine in range(3):
        left = average(models, [0.0 if client == byzantine else share for client, share in enumerate(shares)])
        fits.append(all(torch.allclose(final[key].double(), value, atol=1e-6) for key, value in left.items()))
    assert sorted(fits) == [False, False, True]


def test_run_with_defence_averages_clipped_updates(tmp_path: Path) -> None:
    start, final, aggregator = run_one_round(tmp_path / "run", ListeningFedAvg, **DEFENCE)
    shares, models = shares_and_models(aggregator.received)
    clipped = []
    for weights in models:
        far = distance(weights, start)
        assert far > 0.05
        clipped.append(OrderedDict((key, start[key] + (weights[key] - start[key]) * (0.05 / far)) for key in start))
    assert_close(final, average(clipped, shares))


@pytest.mark.parametrize("options", [ATTACK, DEFENCE], ids=["an attack", "a defence"])
def test_mrtf_run_refines_with_the_models_that_fedml_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """The result equals a round without hooks in which the clients send the attacked or clipped models."""
    # FedML simulates attacks on what the clients have sent, after their updates were screened.
    for module in ("training.round", "fedml_bridge.adapters"):
        monkeypatch.setattr(f"mrtf_fedml.{module}.screen_replies", lambda replies, *others: replies)
    start, final, aggregator = run_one_round(tmp_path / "run", ListeningMrTF, **options)
    if options is ATTACK:
        zeros = [all(not entry[key].any() for key in entry) for _, entry in aggregator.entries]
        assert sorted(zeros) == [False, False, True]
    else:
        assert [distance(entry, start) for _, entry in aggregator.entries] == pytest.approx([0.05] * 3, rel=1e-4)
    args, device, dataset, model = project(tmp_path, comm_round=1, aggregation="samples", preset="paper")
    # FedML attacks after updates have been compared; here the attacked ones arrive from the clients.
    monkeypatch.setattr(outliers, "MAX_RATIO", float("inf"))
    monkeypatch.setattr(outliers, "EXCLUSION_RATIO", float("inf"))
    without_hooks = MrTFAggregator(model, args)
    without_hooks.bind_server_set(dataset.server_inputs, dataset.class_num, device)
    messages = [
        (samples, with_loss(entry, float(message[LOSS])))
        for (samples, entry), (_, message) in zip(aggregator.entries, aggregator.received, strict=True)
    ]
    _, _, following = one_round(without_hooks, read_metrics(tmp_path / "run" / "run")[0]["clients"], messages)
    assert_close(final, following)
