"""The server rules of FedAvg, FedDF and MrTF on a bench that is small enough to follow."""

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
    ServerBench,
    ServerState,
    algorithm_named,
)
from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureTap
from mrtf_fedml.models.weights import mix, snapshot
from mrtf_fedml.settings import RunSettings

CLASSES = 3
#: Under this name MrTF keeps the last round's targets.
TARGETS = "refinery/targets"


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


def scene() -> tuple[ServerBench, list[ClientUpdate], ServerState]:
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(0)
    nets = [Net() for _ in range(4)]
    for counter, net in enumerate(nets):
        net.norm.num_batches_tracked.fill_(10 * counter)
        net.norm.running_var.uniform_(0.5, 2.0)
    inputs = torch.randn(30, 4)
    torch.random.set_rng_state(torch_state)
    model = nets[0]
    bench = ServerBench(model, inputs, FeatureTap(model, None, inputs[:2]), CLASSES)
    updates = [
        ClientUpdate(client, samples, snapshot(net), loss)
        for client, samples, net, loss in zip((4, 7, 9), (10, 30, 60), nets[1:], (0.2, 0.4, 0.6), strict=True)
    ]
    start = snapshot(model)
    return bench, updates, ServerState(round=6, weights=start, answer=start)


def finish(algorithm: Algorithm) -> tuple[ServerState, RoundReport, Any]:
    bench, updates, state = scene()
    aggregated = algorithm.aggregate(updates)
    after, report = algorithm.finish_round(state, updates, aggregated, bench)
    return after, report, aggregated


def equal(first: Any, second: Any) -> bool:
    return list(first) == list(second) and all(torch.equal(first[key], second[key]) for key in first)


def test_uniform_and_sample_weighted_averages_by_hand() -> None:
    _, updates, _ = scene()
    w = [update.weights["hidden.bias"] for update in updates]
    torch.testing.assert_close(FedAvg(settings()).aggregate(updates)["hidden.bias"], (w[0] + w[1] + w[2]) / 3)
    by_samples = FedAvg(settings(aggregation="samples")).aggregate(updates)
    torch.testing.assert_close(by_samples["hidden.bias"], 0.1 * w[0] + 0.3 * w[1] + 0.6 * w[2])
    counter = by_samples["norm.num_batches_tracked"]
    assert counter.dtype == torch.int64
    assert counter.item() == 30


def test_fedavg_answers_and_goes_on_with_the_average() -> None:
    after, _, aggregated = finish(FedAvg(settings()))
    assert equal(after.weights, aggregated)
    assert equal(after.answer, aggregated)
    assert after.round == 7


def test_mrtf_without_steps_is_fedavg_to_the_bit() -> None:
    after, _, aggregated = finish(MrTF(settings(refine_steps=0)))
    assert equal(after.weights, aggregated)
    assert equal(after.answer, aggregated)


@pytest.mark.parametrize("feedback", ["always", "never", "adaptive"])
def test_feedback_says_what_the_next_clients_receive(feedback: str) -> None:
    after, _, aggregated = finish(MrTF(settings(feedback=feedback)))
    refined = after.answer
    assert not equal(refined, aggregated)
    share = 0.4 / math.log(CLASSES)
    wanted = {"always": refined, "never": aggregated, "adaptive": mix(refined, aggregated, share)}[feedback]
    assert equal(after.weights, wanted)
    if feedback == "adaptive":
        by_hand = share * refined["out.bias"] + (1 - share) * aggregated["out.bias"]
        torch.testing.assert_close(after.weights["out.bias"], by_hand)
        assert after.weights["norm.num_batches_tracked"].dtype == torch.int64
        assert (after.weights["norm.running_var"] > 0).all()


def test_smoothing_keeps_a_share_of_the_last_targets() -> None:
    plain, _, _ = finish(MrTF(settings(target_smoothing=0.75)))
    bench, updates, state = scene()
    previous = torch.softmax(torch.arange(90.0).reshape(30, 3) % 7, dim=1)
    algorithm = MrTF(settings(target_smoothing=0.75))
    state = replace(state, memory={TARGETS: previous})
    after, _ = algorithm.finish_round(state, updates, algorithm.aggregate(updates), bench)
    kept = 0.75 * (1 - 0.4 / math.log(CLASSES))
    torch.testing.assert_close(after.memory[TARGETS], (1 - kept) * plain.memory[TARGETS] + kept * previous)


def test_the_refining_rate_decays_by_the_round() -> None:
    # The scene is at round 6.
    decayed, _, _ = finish(MrTF(settings(refine_lr=0.01, refine_lr_decay=0.5)))
    by_hand, _, _ = finish(MrTF(settings(refine_lr=0.01 * 0.5**6)))
    constant, _, _ = finish(MrTF(settings(refine_lr=0.01)))
    assert equal(decayed.answer, by_hand.answer)
    assert not equal(decayed.answer, constant.answer)
    bench, updates, state = scene()
    algorithm = MrTF(settings(refine_lr_decay=0.5))
    late, _ = algorithm.finish_round(replace(state, round=5000), updates, algorithm.aggregate(updates), bench)
    assert late.round == 5001, "a rate too small for a number is none to fail by"


def test_the_student_follows_sharper_targets_than_those_that_are_carried_on() -> None:
    plain, report, _ = finish(MrTF(settings(target_smoothing=0.75)))
    sharp, sharper, _ = finish(MrTF(settings(target_smoothing=0.75, target_sharpness=3.0)))
    assert torch.equal(report.predictions["targets"], sharper.predictions["targets"])
    assert torch.equal(plain.memory[TARGETS], sharp.memory[TARGETS])
    assert not equal(plain.answer, sharp.answer)


def test_targets_are_carried_only_where_they_are_needed() -> None:
    assert not finish(MrTF(settings()))[0].memory


def test_clustering_waits_for_the_warm_up() -> None:
    _, early, _ = finish(MrTF(settings(cluster_warmup=7)))
    _, late, _ = finish(MrTF(settings(cluster_warmup=6)))
    assert torch.equal(early.predictions["targets"], early.predictions["ensemble"])
    assert not torch.equal(late.predictions["targets"], late.predictions["ensemble"])


def test_feddf_is_avg_logit_whatever_the_preset_for_mrtf_says() -> None:
    after, report, _ = finish(FedDF(settings(preset="tuned")))
    bench, updates, _ = scene()
    logits = torch.stack([bench.logits(update.weights) for update in updates])
    told = report.predictions
    torch.testing.assert_close(told["ensemble"], torch.softmax(logits.mean(0), dim=1), atol=1e-6, rtol=0)
    assert torch.equal(told["targets"], told["ensemble"])
    assert report.metrics["local_weight"] == 1.0
    assert equal(after.weights, after.answer), "FedDF sends the refined model back"


def test_a_missing_loss_falls_back_to_half_of_log_c_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, updates, state = scene()
    silent = [replace(update, loss=None) for update in updates]
    algorithm = MrTF(settings())
    for _ in range(2):
        _, report = algorithm.finish_round(state, silent, algorithm.aggregate(silent), bench)
    assert report.metrics["local_weight"] == pytest.approx(0.25 + 0.75 * 0.5)
    assert caplog.text.count("half of log C") == 1


def test_the_clients_weights_and_the_old_state_are_not_written_into() -> None:
    bench, updates, state = scene()
    before = [snapshot_of(update.weights) for update in updates] + [snapshot_of(state.weights)]
    algorithm = MrTF(settings())
    algorithm.finish_round(state, updates, algorithm.aggregate(updates), bench)
    after = [update.weights for update in updates] + [state.weights]
    assert all(equal(a, b) for a, b in zip(after, before, strict=True))


def snapshot_of(weights: Any) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in weights.items()}


def test_refining_twice_gives_the_same_bits() -> None:
    assert equal(finish(MrTF(settings()))[0].answer, finish(MrTF(settings()))[0].answer)


def test_names_are_found_in_any_case_and_unknown_ones_get_a_hint() -> None:
    assert algorithm_named("mrtf:fedavg") is FedAvg
    assert algorithm_named("MRTF") is MrTF
    with pytest.raises(UserError, match="did you mean 'FedAvg'"):
        algorithm_named("FedAvgg")
