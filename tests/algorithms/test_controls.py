"""SHOT and LAME on FedAvg's last model: once, after the last round, and not before."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms import LAME, SHOT, ServerBench
from mrtf_fedml.algorithms.shot import extractor_parameters, pseudo_labels, shot_loss
from mrtf_fedml.models import FeatureTap
from mrtf_fedml.refinery.propagation import propagated
from mrtf_fedml.settings import RunSettings

from .test_server_rules import equal, scene

#: The scene is at round 6, so that a run of seven rounds ends with it.
LAST, NOT_LAST = 7, 8


def settings(rounds: int, **own: Any) -> RunSettings:
    section = "lame_args" if any(key.startswith("lame") for key in own) else "shot_args"
    return RunSettings.from_config({"train_args": {"comm_round": rounds}, section: own})


@pytest.mark.parametrize("algorithm", [SHOT, LAME])
def test_before_the_last_round_it_is_fedavg(algorithm: Any) -> None:
    bench, updates, state = scene()
    control = algorithm(settings(NOT_LAST))
    aggregated = control.aggregate(updates)
    after, report = control.finish_round(state, updates, aggregated, bench)
    assert equal(after.weights, aggregated)
    assert equal(after.answer, aggregated)
    assert torch.equal(control.answer_logits(after, bench), bench.logits(aggregated))
    assert not report.predictions


def test_lame_corrects_the_last_answer_and_no_weight() -> None:
    bench, updates, state = scene()
    lame = LAME(settings(LAST, lame_neighbours=3, lame_strength=0.7))
    aggregated = lame.aggregate(updates)
    after, report = lame.finish_round(state, updates, aggregated, bench)
    assert equal(after.answer, aggregated)
    plain = bench.logits(aggregated)
    features = bench.features(aggregated, torch.arange(30))
    expected = propagated(plain.softmax(dim=1), features, neighbours=3, strength=0.7)
    torch.testing.assert_close(report.predictions["lame"], expected)
    torch.testing.assert_close(report.predictions["aggregated"], plain)
    torch.testing.assert_close(lame.answer_logits(after, bench).softmax(dim=1), expected)
    assert (expected - plain.softmax(dim=1)).abs().max() > 1e-3
    # The state alone answers, as after a run that was killed; and so does one whose last round nobody answered.
    kept = replace(after, memory=dict(after.memory))
    assert torch.equal(lame.answer_logits(kept, bench), lame.answer_logits(after, bench))
    skipped = lame.skipped_round(replace(state, answer=aggregated))
    torch.testing.assert_close(lame.answer_logits(skipped, bench).softmax(dim=1), expected)


def test_a_run_that_goes_on_forgets_the_correction() -> None:
    bench, updates, state = scene()
    lame = LAME(settings(LAST))
    after, _ = lame.finish_round(state, updates, lame.aggregate(updates), bench)
    assert after.memory
    longer = LAME(settings(NOT_LAST + 1))
    assert torch.equal(longer.answer_logits(after, bench), bench.logits(after.answer))
    further, _ = longer.finish_round(after, updates, longer.aggregate(updates), bench)
    assert not further.memory


def test_shot_adapts_the_extractor_and_leaves_the_head_and_the_next_start() -> None:
    bench, updates, state = scene()
    shot = SHOT(settings(LAST, shot_epochs=3, shot_batch_size=8))
    aggregated = shot.aggregate(updates)
    after, report = shot.finish_round(state, updates, aggregated, bench)
    assert equal(after.weights, aggregated), "a resumed run goes on as FedAvg"
    for name in ("out.weight", "out.bias"):
        assert torch.equal(after.answer[name], aggregated[name]), "the head stands still"
    for name in ("hidden.weight", "norm.weight"):
        assert not torch.equal(after.answer[name], aggregated[name])
    torch.testing.assert_close(report.predictions["shot"], bench.logits(after.answer))
    again, _ = shot.finish_round(state, updates, aggregated, bench)
    assert equal(again.answer, after.answer)


def test_shot_lowers_its_loss() -> None:
    bench, updates, state = scene()
    shot = SHOT(settings(LAST, shot_epochs=20, shot_batch_size=30, shot_lr=0.3, shot_pseudo_weight=0.0))
    aggregated = shot.aggregate(updates)
    after, _ = shot.finish_round(state, updates, aggregated, bench)
    labels = torch.zeros(30, dtype=torch.long)
    before, now = (shot_loss(bench.logits(weights), labels, 0.0) for weights in (aggregated, after.answer))
    assert now < before - 0.05


def test_the_loss_by_hand() -> None:
    # q = [3/4, 1/4] twice: E[H] = H(E), so information is 0, and the pseudo-label 1 costs log 4.
    logits = torch.tensor([[math.log(3), 0.0]] * 2)
    loss = shot_loss(logits, torch.tensor([1, 1]), pseudo_weight=0.5)
    assert float(loss) == pytest.approx(0.5 * math.log(4), abs=1e-6)
    # q = [3/4, 1/4] and [1/4, 3/4]: E[H] - log 2.
    varied = torch.tensor([[math.log(3), 0.0], [0.0, math.log(3)]])
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert float(shot_loss(varied, torch.tensor([0, 1]), 0.0)) == pytest.approx(entropy - math.log(2), abs=1e-6)


def test_pseudo_labels_follow_the_nearest_centroid() -> None:
    # The third sample is called 1, but lies with those that are called 0; nobody is left in class 2.
    probabilities = torch.tensor([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.4, 0.6, 0.0], [0.0, 1.0, 0.0]])
    features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.05], [0.0, 1.0]])
    assert pseudo_labels(probabilities, features).tolist() == [0, 0, 0, 1]


def test_the_extractor_is_what_features_depend_on() -> None:
    convolutional = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)
    )
    inputs = torch.zeros(4, 1, 4, 4)
    bench = ServerBench(convolutional, inputs, FeatureTap(convolutional, None, inputs[:2]), 3)
    names = {id(parameter): name for name, parameter in convolutional.named_parameters()}
    assert [names[id(p)] for p in extractor_parameters(convolutional, bench)] == ["0.weight", "0.bias"]


def test_a_model_without_an_extractor_is_left_as_it_is() -> None:
    model = nn.Linear(4, 3)
    inputs = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    bench = ServerBench(model, inputs, FeatureTap(model, None, inputs[:2]), 3)
    assert extractor_parameters(model, bench) == []
