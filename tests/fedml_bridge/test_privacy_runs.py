"""Whole runs with `dp_args`: what clients send, and the budget in the run directory."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fedml.runner import FedMLRunner
from torch import Tensor

import mrtf_fedml
from mrtf_fedml.cli import main
from mrtf_fedml.fedml_bridge.messages import LOSS
from tests.conftest import output_bytes, read_metrics, small_config, write_yaml
from tests.fedml_bridge.four_clients import ListeningMrTF, all_entries
from tests.fedml_bridge.test_baselines import run
from tests.fedml_bridge.test_plugin import project
from tests.privacy.test_budget import composed_epsilon

CLIP, SIGMA = 0.25, 0.01


@pytest.fixture(autouse=True)
def _unregistered() -> Iterator[None]:
    yield
    mrtf_fedml.unregister()


def summary(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "summary.json").read_text())


def without(line: dict[str, Any], *keys: str) -> dict[str, Any]:
    """A line of metrics but for these keys and for its times, which no two runs share."""
    return {key: value for key, value in line.items() if key not in keys and not key.endswith("_seconds")}


def test_privacy_budget_is_in_metrics_summary_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private = run(tmp_path, "private", "MrTF", clip=0.5, sigma=0.01, comm_round=2)
    lines = read_metrics(private)
    assert 0 < lines[0]["epsilon_server"] <= lines[1]["epsilon_server"]
    assert 0 < lines[0]["epsilon_release"] < lines[1]["epsilon_release"]
    assert all(line["train_loss"] is None for line in lines), "the loss stays with the client"
    assert summary(private)["epsilon_server"] == lines[1]["epsilon_server"]
    assert summary(private)["epsilon_release"] == lines[1]["epsilon_release"]
    assert "a fixed number is drawn" in (private / "report.html").read_text()
    assert "towards the server" in capsys.readouterr().out
    parts = run(tmp_path, "parts", "MrTF", clip=0.5, sigma=0.01, comm_round=1)
    assert main(["run", "--resume", str(parts), "--set", "comm_round=2"]) == 0
    assert output_bytes(parts) == output_bytes(private)
    assert [without(line) for line in read_metrics(parts)] == [without(line) for line in lines]


def test_resume_with_other_noise_keeps_the_spent_budget(tmp_path: Path) -> None:
    run_dir = run(tmp_path, "run", "FedAvg", clip=0.5, sigma=0.1, comm_round=2, client_num_per_round=8)
    before = read_metrics(run_dir)[-1]["epsilon_server"]
    assert before == pytest.approx(composed_epsilon([0.2, 0.2], 1e-5), rel=1e-6)
    # A lost line of the metrics loses nothing of the account.
    (run_dir / "metrics.jsonl").write_text((run_dir / "metrics.jsonl").read_text().splitlines(keepends=True)[1])
    for sigma, rounds in ((5.0, 3), (0.5, 4)):
        assert main(["run", "--resume", str(run_dir), "--set", f"sigma={sigma}", "--set", f"comm_round={rounds}"]) == 0
    after = [line["epsilon_server"] for line in read_metrics(run_dir)[-2:]]
    assert after[0] == pytest.approx(composed_epsilon([0.2, 0.2, 10.0], 1e-5), rel=1e-6)
    assert after[1] == pytest.approx(composed_epsilon([0.2, 0.2, 10.0, 1.0], 1e-5), rel=1e-6)
    assert before < after[0] < after[1] == summary(run_dir)["epsilon_server"]


def test_resume_with_privacy_reports_no_epsilon_for_earlier_rounds(tmp_path: Path) -> None:
    run_dir = run(tmp_path, "run", "FedAvg", comm_round=1)
    resume = ["run", "--resume", str(run_dir), "--set", "clip=0.5", "--set", "sigma=5.0", "--set"]
    assert main([*resume, "comm_round=2"]) == 0
    assert [line["epsilon_server"] for line in read_metrics(run_dir)] == [None, "none"]
    assert summary(run_dir)["epsilon_server"] == summary(run_dir)["epsilon_release"] == "none"


def test_clip_above_all_norms_without_noise_changes_no_weight(tmp_path: Path) -> None:
    plain = run(tmp_path, "plain", "FedAvg", comm_round=2)
    wide = run(tmp_path, "wide", "FedAvg", comm_round=2, clip=1e6)
    assert output_bytes(wide) == output_bytes(plain)
    for line, before in zip(read_metrics(wide), read_metrics(plain), strict=True):
        # What a bound alone changes: the loss stays with the client, which each message has 8 bytes for, and there
        # is a budget to tell of.
        private = ("train_loss", "uplink_bytes", "epsilon_server", "epsilon_release")
        assert without(line, *private) == without(before, *private)
        assert line["train_loss"] is None
        assert before["uplink_bytes"] - line["uplink_bytes"] == 8 * len(line["clients"])
        assert line["epsilon_server"] == line["epsilon_release"] == "none"
        assert before["epsilon_server"] is before["epsilon_release"] is None
    assert summary(wide)["epsilon_server"] == "none"


def first_round(folder: Path, **changes: Any) -> tuple[OrderedDict[str, Tensor], list[OrderedDict[str, Tensor]]]:
    """The first weights, and what the clients of the first round send to MrTF's server."""
    folder.mkdir()
    args, device, dataset, model = project(folder, comm_round=1, **changes)
    start = OrderedDict((key, value.clone()) for key, value in model.state_dict().items())
    mrtf_fedml.register()
    aggregator = ListeningMrTF(model, args)
    FedMLRunner(args, device, dataset, model, None, aggregator).run()
    return start, [message for _, message in aggregator.received]


def test_private_update_is_clipped_then_noised_and_has_no_loss(tmp_path: Path) -> None:
    start, free = first_round(tmp_path / "free", base="FedAvg", client_validation=False)
    _, clipped = first_round(tmp_path / "clipped", clip=CLIP)
    _, noised = first_round(tmp_path / "noised", clip=CLIP, sigma=SIGMA)
    noises = []
    for plain, short, sent in zip(free, clipped, noised, strict=True):
        assert set(plain) - {LOSS} == set(short) == set(sent) == set(start)
        plain.pop(LOSS)
        update = all_entries(plain) - all_entries(start)
        assert float(update.norm()) > CLIP
        shortened = all_entries(short) - all_entries(start)
        torch.testing.assert_close(shortened, update * (CLIP / update.norm()), rtol=1e-4, atol=1e-7)
        assert float(shortened.norm()) == pytest.approx(CLIP, rel=1e-4)
        noises.append(all_entries(sent) - all_entries(short))
    count = len(noises[0])
    assert count > 10_000
    for noise in noises:
        # Each within five of its standard errors.
        assert float(noise.mean()) == pytest.approx(0, abs=5 * SIGMA / math.sqrt(count))
        assert float(noise.std()) == pytest.approx(SIGMA, rel=5 / math.sqrt(2 * count))
    correlations = torch.corrcoef(torch.stack(noises)) - torch.eye(len(noises))
    assert correlations.abs().max() < 5 / math.sqrt(count), "each client has noise of its own"


def test_scaffold_with_privacy_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = small_config(federated_optimizer="Scaffold", clip=1.0, sigma=0.1, run_dir=str(tmp_path / "run"))
    assert main(["run", "--cf", str(write_yaml(tmp_path / "c.yaml", config))]) == 2
    assert "choose another algorithm" in capsys.readouterr().err


def test_ridge_regression_charges_each_client_for_one_noisy_sum(tmp_path: Path) -> None:
    private = run(tmp_path, "ridge", "FedRidge", clip=500.0, sigma=400.0, comm_round=9)
    assert len(read_metrics(private)) == 3, "8 clients, 3 per round, each once"
    assert summary(private)["epsilon_server"] == pytest.approx(composed_epsilon([400 / 500], 1e-5))
