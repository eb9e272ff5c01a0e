"""Whole runs of the baselines on real digits, through `mrtf run` and FedMLRunner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fedml.runner import FedMLRunner
from safetensors.torch import load_file

import mrtf_fedml
from mrtf_fedml.cli import main
from tests.conftest import output_bytes, read_metrics, small_config, write_yaml


def run(folder: Path, name: str, algorithm: str, **changes: Any) -> Path:
    """A finished run's folder."""
    run_dir = folder / name
    config = small_config(run_dir=str(run_dir), federated_optimizer=algorithm, model="mlp", **changes)
    assert main(["run", "--cf", str(write_yaml(folder / f"{name}.yaml", config))]) == 0
    return run_dir


@pytest.fixture(scope="module")
def fedavg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("fedavg"), "fedavg", "FedAvg", comm_round=3)


@pytest.mark.parametrize(
    ("algorithm", "degenerate"),
    [
        ("FedProx", {"fedprox_mu": 0}),
        ("FedMMD", {"mmd_weight": 0}),
        ("FedOpt", {"server_optimizer": "sgd", "server_lr": 1.0, "server_momentum": 0.0}),
        ("Scaffold", {"comm_round": 1}),
        ("LAME", {"lame_strength": 0}),
    ],
)
def test_baseline_with_neutral_settings_equals_fedavg(
    tmp_path: Path, fedavg: Path, algorithm: str, degenerate: dict[str, Any]
) -> None:
    usual = run(tmp_path, "usual", algorithm, comm_round=3)
    assert output_bytes(usual) != output_bytes(fedavg)
    assert [line["clients"] for line in read_metrics(usual)] == [line["clients"] for line in read_metrics(fedavg)]
    again = run(tmp_path, "degenerate", algorithm, **{"comm_round": 3, **degenerate})
    # Scaffold's variates are zero in the first round, and there alone.
    same = run(tmp_path, "fedavg", "FedAvg", comm_round=1) if algorithm == "Scaffold" else fedavg
    assert output_bytes(again) == output_bytes(same)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("FedOpt", {"server_optimizer": "yogi"}),
        ("Scaffold", {"scaffold_option": 1}),
        ("Scaffold", {}),
        ("FedAUX", {}),
        # These two change the predictions only after the last round, which is another one in a resumed run.
        ("SHOT", {"shot_epochs": 1}),
        ("LAME", {}),
        ("benchmarks.paper.released:ReleasedMrTF", {}),
    ],
)
def test_resumed_baseline_equals_uninterrupted_run(tmp_path: Path, algorithm: str, settings: dict[str, Any]) -> None:
    whole = run(tmp_path, "whole", algorithm, comm_round=4, **settings)
    parts = run(tmp_path, "parts", algorithm, comm_round=2, **settings)
    assert main(["run", "--resume", str(parts), "--set", "comm_round=4"]) == 0
    assert output_bytes(parts) == output_bytes(whole)
    states = [load_file(run_dir / "state" / "server.safetensors") for run_dir in (whole, parts)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_scaffold_payload_is_counted_in_bytes(tmp_path: Path, fedavg: Path) -> None:
    plain, lines = read_metrics(fedavg), read_metrics(run(tmp_path, "scaffold", "Scaffold", comm_round=3))
    model = plain[0]["downlink_bytes"]
    assert lines[0]["downlink_bytes"] == model, "while all variates are zero none is sent"
    assert lines[1]["downlink_bytes"] == 2 * model
    assert lines[0]["uplink_bytes"] - plain[0]["uplink_bytes"] == model


def test_algorithm_names_of_fedml_need_the_prefix(tmp_path: Path) -> None:
    from tests.fedml_bridge.test_plugin import project

    mrtf_fedml.register()
    try:
        for word in ("FedMMD", "mrtf:Scaffold", "mrtf:FedProx", "mrtf:FedOpt"):
            folder = tmp_path / word.replace(":", "-")
            folder.mkdir()
            args, device, dataset, model = project(folder, federated_optimizer=word, comm_round=1)
            FedMLRunner(args, device, dataset, model).run()
            summary = json.loads((folder / "run" / "summary.json").read_text())
            assert summary["algorithm"] == word.rpartition(":")[2]
    finally:
        mrtf_fedml.unregister()
    assert mrtf_fedml.ScaffoldTrainer.algorithm_class.name == "Scaffold"
    assert mrtf_fedml.FedMMDAggregator.algorithm_class.name == "FedMMD"
