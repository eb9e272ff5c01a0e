"""SHOT and LAME on FedAvg's last model: once, after the last round, and not before."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms import LAME, SHOT, ServerContext
from mrtf_fedml.algorithms.baselines.lame import propagate_labels
from mrtf_fedml.algorithms.baselines.shot import extractor_parameters, pseudo_labels, shot_loss
from mrtf_fedml.config import RunSettings
from mrtf_fedml.models import FeatureExtractor

from ..test_server_rules import equal, server_setup

#: The setup is at round 6, so it is the last round of a run of seven.
LAST, NOT_LAST = 7, 8


def settings(rounds: int, **own: Any) -> RunSettings:
    section = "lame_args" if any(key.startswith("lame") for key in own) else "shot_args"
    return RunSettings.from_config({"train_args": {"comm_round": rounds}, section: own})


@pytest.mark.parametrize("algorithm", [SHOT, LAME])
def test_control_before_the_last_round_equals_fedavg(algorithm: Any) -> None:
    server, updates, state = server_setup()
    control = algorithm(settings(NOT_LAST))
    aggregated = control.aggregate(updates)
    after, report = control.server_update(state, updates, aggregated, server)
    assert equal(after.weights, aggregated)
    assert equal(after.prediction_weights, aggregated)
    assert torch.equal(control.prediction_logits(after, server), server.logits(aggregated))
    assert not report.predictions


def test_lame_corrects_the_final_predictions_and_no_weight() -> None:
    server, updates, state = server_setup()
    lame = LAME(settings(LAST, lame_neighbours=3, lame_strength=0.7))
    aggregated = lame.aggregate(updates)
    after, report = lame.server_update(state, updates, aggregated, server)
    assert equal(after.prediction_weights, aggregated)
    plain = server.logits(aggregated)
    features = server.features(aggregated, torch.arange(30))
    expected = propagate_labels(plain.softmax(dim=1), features, neighbours=3, strength=0.7)
    torch.testing.assert_close(report.predictions["lame"], expected)
    torch.testing.assert_close(report.predictions["aggregated"], plain)
    torch.testing.assert_close(lame.prediction_logits(after, server).softmax(dim=1), expected)
    assert (expected - plain.softmax(dim=1)).abs().max() > 1e-3
    # A restored state gives the same predictions, as after a kill; so does a last round without updates.
    restored = replace(after, memory=dict(after.memory))
    assert torch.equal(lame.prediction_logits(restored, server), lame.prediction_logits(after, server))
    skipped = lame.skip_round(replace(state, prediction_weights=aggregated))
    torch.testing.assert_close(lame.prediction_logits(skipped, server).softmax(dim=1), expected)


def test_lame_removes_the_correction_if_the_run_continues() -> None:
    server, updates, state = server_setup()
    lame = LAME(settings(LAST))
    after, _ = lame.server_update(state, updates, lame.aggregate(updates), server)
    assert after.memory
    longer = LAME(settings(NOT_LAST + 1))
    assert torch.equal(longer.prediction_logits(after, server), server.logits(after.prediction_weights))
    further, _ = longer.server_update(after, updates, longer.aggregate(updates), server)
    assert not further.memory


def test_shot_adapts_the_extractor_and_keeps_head_and_broadcast_weights() -> None:
    server, updates, state = server_setup()
    shot = SHOT(settings(LAST, shot_epochs=3, shot_batch_size=8))
    aggregated = shot.aggregate(updates)
    after, report = shot.server_update(state, updates, aggregated, server)
    assert equal(after.weights, aggregated), "a resumed run continues as FedAvg"
    for name in ("out.weight", "out.bias"):
        assert torch.equal(after.prediction_weights[name], aggregated[name]), "the head is unchanged"
    for name in ("hidden.weight", "norm.weight"):
        assert not torch.equal(after.prediction_weights[name], aggregated[name])
    torch.testing.assert_close(report.predictions["shot"], server.logits(after.prediction_weights))
    again, _ = shot.server_update(state, updates, aggregated, server)
    assert equal(again.prediction_weights, after.prediction_weights)


def test_shot_lowers_its_loss() -> None:
    server, updates, state = server_setup()
    shot = SHOT(settings(LAST, shot_epochs=20, shot_batch_size=30, shot_lr=0.3, shot_pseudo_weight=0.0))
    aggregated = shot.aggregate(updates)
    after, _ = shot.server_update(state, updates, aggregated, server)
    labels = torch.zeros(30, dtype=torch.long)
    before, now = (shot_loss(server.logits(weights), labels, 0.0) for weights in (aggregated, after.prediction_weights))
    assert now < before - 0.05


def test_shot_loss_equals_values_by_hand() -> None:
    # q = [3/4, 1/4] twice: E[H] = H(E), so information is 0, and the pseudo-label 1 costs log 4.
    logits = torch.tensor([[math.log(3), 0.0]] * 2)
    loss = shot_loss(logits, torch.tensor([1, 1]), pseudo_weight=0.5)
    assert float(loss) == pytest.approx(0.5 * math.log(4), abs=1e-6)
    # q = [3/4, 1/4] and [1/4, 3/4]: E[H] - log 2.
    varied = torch.tensor([[math.log(3), 0.0], [0.0, math.log(3)]])
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert float(shot_loss(varied, torch.tensor([0, 1]), 0.0)) == pytest.approx(entropy - math.log(2), abs=1e-6)


def test_pseudo_labels_follow_the_nearest_centroid() -> None:
    # The third sample is predicted as 1 but is close to those predicted as 0; class 2 is empty.
    probabilities = torch.tensor([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.4, 0.6, 0.0], [0.0, 1.0, 0.0]])
    features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.05], [0.0, 1.0]])
    assert pseudo_labels(probabilities, features).tolist() == [0, 0, 0, 1]


def test_extractor_parameters_are_those_that_features_depend_on() -> None:
    convolutional = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)
    )
    inputs = torch.zeros(4, 1, 4, 4)
    server = ServerContext(convolutional, inputs, FeatureExtractor(convolutional, None, inputs[:2]), 3)
    names = {id(parameter): name for name, parameter in convolutional.named_parameters()}
    assert [names[id(p)] for p in extractor_parameters(convolutional, server)] == ["0.weight", "0.bias"]


def test_extractor_parameters_of_a_model_without_extractor_are_empty() -> None:
    model = nn.Linear(4, 3)
    inputs = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    server = ServerContext(model, inputs, FeatureExtractor(model, None, inputs[:2]), 3)
    assert extractor_parameters(model, server) == []
