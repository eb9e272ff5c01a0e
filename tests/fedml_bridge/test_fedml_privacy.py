"""FedML's own differential privacy in our rounds: what is clipped, and noise of the stated scale where it belongs."""

from __future__ import annotations

import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mrtf_fedml import FedAvgAggregator, MrTFTrainer
from mrtf_fedml.fedml_bridge.messages import LOSS, PAYLOAD, weights_of
from tests.fedml_bridge.four_clients import (
    CLIENTS,
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
from tests.fedml_bridge.test_plugin import project

pytestmark = pytest.mark.usefixtures("harmless_afterwards")

#: FedML's Gaussian mechanism has the deviation sqrt(2 ln(1.25 / delta)) * sensitivity / epsilon, here 0.0538.
GAUSSIAN = {"enable_dp": True, "mechanism_type": "gaussian", "epsilon": 0.9, "delta": 1e-5, "sensitivity": 0.01}
SCALE = math.sqrt(2 * math.log(1.25 / 1e-5)) * 0.01 / 0.9


def assert_normal(noise: Tensor, scale: float) -> None:
    """Mean, deviation and two quantiles of many independent draws, each within five of its standard errors."""
    count = len(noise)
    assert count > 10_000
    assert float(noise.mean()) == pytest.approx(0, abs=5 * scale / math.sqrt(count))
    assert float(noise.std()) == pytest.approx(scale, rel=5 / math.sqrt(2 * count))
    for width, share in ((1, 0.6827), (2, 0.9545)):
        error = math.sqrt(share * (1 - share) / count)
        assert float((noise.abs() < width * scale).double().mean()) == pytest.approx(share, abs=5 * error)


def test_central_dp_clips_each_model_and_adds_noise_to_the_average(tmp_path: Path) -> None:
    net, _, messages = federation(plain_net)
    norms = [float(all_entries(weights_of(message)).norm()) for _, message in messages]
    bound = (norms[1] + norms[2]) / 2
    clipped = [
        OrderedDict((key, value * min(1, bound / norm)) for key, value in weights_of(message).items())
        for (_, message), norm in zip(messages, norms, strict=True)
    ]
    options = {**GAUSSIAN, "dp_solution_type": "cdp", "max_grad_norm": bound}
    aggregator = server(FedAvgAggregator, tmp_path, net, **options)
    aggregator.begin_round(CLIENTS)
    entries, _ = aggregator.on_before_aggregation(messages)
    for (_, entry), expected in zip(entries, clipped, strict=True):
        assert_close(entry, expected)
    aggregated = aggregator.aggregate(entries)
    expected = average(clipped, SHARES)
    assert_close(aggregated, expected)
    torch.manual_seed(5)
    following = aggregator.on_after_aggregation(aggregated)
    torch.manual_seed(5)
    assert_close(
        following,
        OrderedDict((key, value + torch.normal(0.0, SCALE, size=value.shape)) for key, value in expected.items()),
    )


@pytest.mark.parametrize("solution", ["ldp", "cdp"], ids=["local", "central"])
def test_run_with_fedml_dp_adds_noise_of_the_mechanisms_scale(tmp_path: Path, solution: str) -> None:
    """Local noise is each client's own, so in the average of three it is smaller; central noise comes after it."""
    _, plain, _ = run_one_round(tmp_path / "plain", ListeningFedAvg)
    _, noised, aggregator = run_one_round(tmp_path / "noised", ListeningFedAvg, **GAUSSIAN, dp_solution_type=solution)
    counts = [samples for samples, _ in aggregator.received]
    smaller = math.sqrt(sum((count / sum(counts)) ** 2 for count in counts)) if solution == "ldp" else 1.0
    assert_normal(all_entries(noised) - all_entries(plain), SCALE * smaller)


def test_mrtf_run_with_local_dp_refines_with_noised_models(tmp_path: Path) -> None:
    _, plain, quiet = run_one_round(tmp_path / "plain", ListeningMrTF)
    _, noised, aggregator = run_one_round(tmp_path / "noised", ListeningMrTF, **GAUSSIAN, dp_solution_type="ldp")
    noises = []
    for (_, message), (_, entry), (_, before) in zip(
        aggregator.received, aggregator.entries, quiet.received, strict=True
    ):
        assert all(torch.equal(entry[key], message[key]) for key in entry)
        noises.append(all_entries(weights_of(message)) - all_entries(weights_of(before)))
        assert_normal(noises[-1], SCALE)
    correlations = torch.corrcoef(torch.stack(noises)) - torch.eye(3)
    assert correlations.abs().max() < 5 / math.sqrt(len(noises[0])), "each client has noise of its own"
    assert all(torch.isfinite(value).all() for value in noised.values())
    assert any(not torch.equal(noised[key], plain[key]) for key in plain)


def test_local_dp_adds_noise_to_the_weights_and_not_to_the_loss(tmp_path: Path) -> None:
    """Nothing else is sent without noise: a variate, which `tuned` would send, reveals the weights."""

    def message_of(folder: Path, base: str = "auto", validates: bool = True, **options: Any) -> Weights:
        folder.mkdir()
        args, device, dataset, model = project(folder, base=base, **({} if validates else {"client_validation": False}))
        vars(args).update(options, round_idx=0)
        trainer = MrTFTrainer(model, args)
        trainer.set_id(2)
        trainer.update_dataset(dataset[5][2], None, dataset[4][2])
        trainer.train(dataset[5][2], device, args)
        trainer.on_after_local_training(dataset[5][2], device, args)
        return trainer.get_model_params()

    plain = message_of(tmp_path / "plain", base="FedAvg", validates=False)
    assert any(key.startswith(PAYLOAD) for key in message_of(tmp_path / "variates"))
    torch.manual_seed(4)
    noised = message_of(tmp_path / "noised", **GAUSSIAN, dp_solution_type="ldp")
    assert list(noised) == list(plain)
    assert torch.equal(noised[LOSS], plain[LOSS])
    assert_normal(all_entries(weights_of(noised)) - all_entries(weights_of(plain)), SCALE)
