"""The server rules of FedAvg, FedDF and MrTF on a server that is small enough to follow."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms import (
    Algorithm,
    ClientUpdate,
    FedAvg,
    FedDF,
    MrTF,
    RoundReport,
    ServerContext,
    ServerState,
    algorithm_by_name,
)
from mrtf_fedml.config import RunSettings
from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureExtractor
from mrtf_fedml.models.state_dict import mix, snapshot
from mrtf_fedml.refinery.teachers import disagreement

CLASSES = 3
#: Under this name MrTF keeps the last round's targets.
TARGETS = "refinery/temporal_smoothing/targets"


class Net(nn.Module):
    """One hidden layer with BatchNorm, so that counters and statistics take part."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.out = nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.norm(self.hidden(x))))


def settings(aggregation: str = "uniform", **refinery: Any) -> RunSettings:
    steps = {"refine_steps": 5, "refine_batch_size": 8, **refinery}
    return RunSettings.from_config({"train_args": {"aggregation": aggregation}, "mrtf_args": steps})


def server_setup() -> tuple[ServerContext, list[ClientUpdate], ServerState]:
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(0)
    nets = [Net() for _ in range(4)]
    for counter, net in enumerate(nets):
        net.norm.num_batches_tracked.fill_(10 * counter)
        net.norm.running_var.uniform_(0.5, 2.0)
    inputs = torch.randn(30, 4)
    torch.random.set_rng_state(torch_state)
    model = nets[0]
    server = ServerContext(model, inputs, FeatureExtractor(model, None, inputs[:2]), CLASSES)
    updates = [
        ClientUpdate(client, samples, snapshot(net), loss)
        for client, samples, net, loss in zip((4, 7, 9), (10, 30, 60), nets[1:], (0.2, 0.4, 0.6), strict=True)
    ]
    start = snapshot(model)
    return server, updates, ServerState(round=6, weights=start, prediction_weights=start)


def finish(algorithm: Algorithm) -> tuple[ServerState, RoundReport, Any]:
    server, updates, state = server_setup()
    aggregated = algorithm.aggregate(updates)
    after, report = algorithm.server_update(state, updates, aggregated, server)
    return after, report, aggregated


def equal(first: Any, second: Any) -> bool:
    return list(first) == list(second) and all(torch.equal(first[key], second[key]) for key in first)


def test_uniform_and_sample_weighted_averages_by_hand() -> None:
    _, updates, _ = server_setup()
    w = [update.weights["hidden.bias"] for update in updates]
    torch.testing.assert_close(FedAvg(settings()).aggregate(updates)["hidden.bias"], (w[0] + w[1] + w[2]) / 3)
    by_samples = FedAvg(settings(aggregation="samples")).aggregate(updates)
    torch.testing.assert_close(by_samples["hidden.bias"], 0.1 * w[0] + 0.3 * w[1] + 0.6 * w[2])
    counter = by_samples["norm.num_batches_tracked"]
    assert counter.dtype == torch.int64
    assert counter.item() == 30


def test_fedavg_predicts_with_and_broadcasts_the_average() -> None:
    after, _, aggregated = finish(FedAvg(settings()))
    assert equal(after.weights, aggregated)
    assert equal(after.prediction_weights, aggregated)
    assert after.round == 7


def test_mrtf_without_steps_equals_fedavg_bitwise() -> None:
    after, _, aggregated = finish(MrTF(settings(refine_steps=0)))
    assert equal(after.weights, aggregated)
    assert equal(after.prediction_weights, aggregated)


@pytest.mark.parametrize("broadcast", ["refined", "aggregated", "loss_interpolated"])
def test_broadcast_setting_selects_the_weights_of_the_next_round(broadcast: str) -> None:
    after, _, aggregated = finish(MrTF(settings(broadcast=broadcast)))
    refined = after.prediction_weights
    assert not equal(refined, aggregated)
    share = 0.4 / math.log(CLASSES)
    mixed = mix(refined, aggregated, share)
    wanted = {"refined": refined, "aggregated": aggregated, "loss_interpolated": mixed}[broadcast]
    assert equal(after.weights, wanted)
    if broadcast == "loss_interpolated":
        by_hand = share * refined["out.bias"] + (1 - share) * aggregated["out.bias"]
        torch.testing.assert_close(after.weights["out.bias"], by_hand)
        assert after.weights["norm.num_batches_tracked"].dtype == torch.int64
        assert (after.weights["norm.running_var"] > 0).all()


def test_smoothing_keeps_a_share_of_the_last_targets() -> None:
    plain, _, _ = finish(MrTF(settings(target_smoothing=0.75)))
    server, updates, state = server_setup()
    previous = torch.softmax(torch.arange(90.0).reshape(30, 3) % 7, dim=1)
    algorithm = MrTF(settings(target_smoothing=0.75))
    state = replace(state, memory={TARGETS: previous})
    after, report = algorithm.server_update(state, updates, algorithm.aggregate(updates), server)
    assert report.teacher_labels is not None
    apart = disagreement(report.teacher_labels)
    assert apart > 0
    share = 0.75 * min(1.0, apart / 0.75) * (1 - 0.4 / math.log(CLASSES))
    torch.testing.assert_close(after.memory[TARGETS], (1 - share) * plain.memory[TARGETS] + share * previous)


def test_target_sharpness_changes_the_student_but_not_the_stored_targets() -> None:
    plain, report, _ = finish(MrTF(settings(target_smoothing=0.75)))
    sharp, sharper, _ = finish(MrTF(settings(target_smoothing=0.75, target_sharpness=3.0)))
    assert torch.equal(report.predictions["targets"], sharper.predictions["targets"])
    assert torch.equal(plain.memory[TARGETS], sharp.memory[TARGETS])
    assert not equal(plain.prediction_weights, sharp.prediction_weights)


def test_targets_are_stored_only_with_smoothing() -> None:
    assert not finish(MrTF(settings()))[0].memory


def test_clustering_waits_for_the_warm_up() -> None:
    _, early, _ = finish(MrTF(settings(cluster_warmup=7)))
    _, late, _ = finish(MrTF(settings(cluster_warmup=6)))
    assert torch.equal(early.predictions["targets"], early.predictions["ensemble"])
    assert not torch.equal(late.predictions["targets"], late.predictions["ensemble"])


def test_feddf_uses_average_logits_with_any_mrtf_preset() -> None:
    after, report, _ = finish(FedDF(settings(preset="tuned")))
    server, updates, _ = server_setup()
    logits = torch.stack([server.logits(update.weights) for update in updates])
    predictions = report.predictions
    torch.testing.assert_close(predictions["ensemble"], torch.softmax(logits.mean(0), dim=1), atol=1e-6, rtol=0)
    assert torch.equal(predictions["targets"], predictions["ensemble"])
    assert report.metrics["local_weight"] == 1.0
    assert equal(after.weights, after.prediction_weights), "FedDF sends the refined model back"


def test_missing_loss_falls_back_to_half_of_log_c_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, updates, state = server_setup()
    silent = [replace(update, loss=None) for update in updates]
    algorithm = MrTF(settings())
    for _ in range(2):
        _, report = algorithm.server_update(state, silent, algorithm.aggregate(silent), server)
    assert report.metrics["local_weight"] == pytest.approx(0.25 + 0.75 * 0.5)
    assert caplog.text.count("half of log C") == 1


def test_server_update_does_not_modify_client_weights_or_old_state() -> None:
    server, updates, state = server_setup()
    before = [snapshot_of(update.weights) for update in updates] + [snapshot_of(state.weights)]
    algorithm = MrTF(settings())
    algorithm.server_update(state, updates, algorithm.aggregate(updates), server)
    after = [update.weights for update in updates] + [state.weights]
    assert all(equal(a, b) for a, b in zip(after, before, strict=True))


def snapshot_of(weights: Any) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in weights.items()}


def test_refining_twice_gives_the_same_bits() -> None:
    assert equal(finish(MrTF(settings()))[0].prediction_weights, finish(MrTF(settings()))[0].prediction_weights)


def test_names_are_found_in_any_case_and_unknown_ones_get_a_hint() -> None:
    assert algorithm_by_name("mrtf:fedavg") is FedAvg
    assert algorithm_by_name("MRTF") is MrTF
    with pytest.raises(UserError, match="did you mean 'FedAvg'"):
        algorithm_by_name("FedAvgg")
