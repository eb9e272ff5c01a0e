"""Whole runs with `dp_args`: what leaves a client, and what the run's folder tells of the budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import mrtf_fedml
from mrtf_fedml.cli import main
from tests.conftest import small_config, write_yaml
from tests.fedml_bridge.test_baselines import answer, metrics, run
from tests.fedml_bridge.test_registry import project


def summary(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "summary.json").read_text())


def test_the_budget_is_in_metrics_summary_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private = run(tmp_path, "private", "MrTF", clip=0.5, sigma=0.01, comm_round=2)
    lines = metrics(private)
    assert 0 < lines[0]["epsilon_server"] <= lines[1]["epsilon_server"]
    assert 0 < lines[0]["epsilon_release"] < lines[1]["epsilon_release"]
    assert all(line["local_loss"] is None for line in lines), "the loss stays with the client"
    assert summary(private)["epsilon_server"] == lines[1]["epsilon_server"]
    assert "a fixed number is drawn" in (private / "report.html").read_text()
    assert "towards the server" in capsys.readouterr().out
    parts = run(tmp_path, "parts", "MrTF", clip=0.5, sigma=0.01, comm_round=1)
    assert main(["run", "--resume", str(parts), "--set", "comm_round=2"]) == 0
    assert answer(parts) == answer(private)
    assert metrics(parts)[-1]["epsilon_server"] == lines[1]["epsilon_server"]


def test_a_bound_that_is_never_met_and_no_noise_changes_no_weight(tmp_path: Path) -> None:
    plain = run(tmp_path, "plain", "FedAvg", comm_round=1)
    wide = run(tmp_path, "wide", "FedAvg", comm_round=1, clip=1e6)
    first, second = ((path / "predictions.csv").read_text() for path in (plain, wide))
    assert [row.split(",")[2] for row in first.splitlines()] == [row.split(",")[2] for row in second.splitlines()]
    assert summary(wide)["epsilon_server"] == "none"
    assert metrics(plain)[0]["epsilon_server"] is None


def test_what_leaves_the_client_is_clipped_and_noised_and_holds_no_loss(tmp_path: Path) -> None:
    args, device, dataset, model = project(tmp_path, clip=0.25)
    trainer = mrtf_fedml.MrTFTrainer(model, args)
    trainer.set_id(2)
    args.round_idx = 0
    start = trainer.get_model_params()
    trainer.update_dataset(dataset[5][2], None, dataset[4][2])
    trainer.train(dataset[5][2], device, args)
    trainer.on_after_local_training(dataset[5][2], device, args)
    message = trainer.get_model_params()
    assert set(message) == set(start)
    squares = [((message[key] - start[key]).double() ** 2).sum() for key in start if start[key].is_floating_point()]
    assert torch.stack(squares).sum().sqrt().item() == pytest.approx(0.25, rel=1e-4)


def test_scaffold_with_privacy_ends_with_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = small_config(federated_optimizer="Scaffold", clip=1.0, sigma=0.1, run_dir=str(tmp_path / "run"))
    assert main(["run", "--cf", str(write_yaml(tmp_path / "c.yaml", config))]) == 2
    assert "choose another algorithm" in capsys.readouterr().err
