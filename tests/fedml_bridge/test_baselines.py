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
from tests.conftest import answer, metrics, small_config, write_yaml


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
def test_the_degenerate_case_is_fedavg_and_no_other(
    tmp_path: Path, fedavg: Path, algorithm: str, degenerate: dict[str, Any]
) -> None:
    usual = run(tmp_path, "usual", algorithm, comm_round=3)
    assert answer(usual) != answer(fedavg)
    assert [line["clients"] for line in metrics(usual)] == [line["clients"] for line in metrics(fedavg)]
    again = run(tmp_path, "degenerate", algorithm, **{"comm_round": 3, **degenerate})
    # Scaffold's variates are zero in the first round, and there alone.
    same = run(tmp_path, "fedavg", "FedAvg", comm_round=1) if algorithm == "Scaffold" else fedavg
    assert answer(again) == answer(same)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("FedOpt", {"server_optimizer": "yogi"}),
        ("Scaffold", {"scaffold_option": 1}),
        ("Scaffold", {}),
        ("FedAUX", {}),
        # These two change the answer after the last round alone, which a resumed run has at another place.
        ("SHOT", {"shot_epochs": 1}),
        ("LAME", {}),
        ("MrTF", {"preset": "released"}),
    ],
)
def test_a_resumed_run_equals_one_that_was_never_stopped(
    tmp_path: Path, algorithm: str, settings: dict[str, Any]
) -> None:
    whole = run(tmp_path, "whole", algorithm, comm_round=4, **settings)
    parts = run(tmp_path, "parts", algorithm, comm_round=2, **settings)
    assert main(["run", "--resume", str(parts), "--set", "comm_round=4"]) == 0
    assert answer(parts) == answer(whole)
    states = [load_file(run_dir / "state" / "server.safetensors") for run_dir in (whole, parts)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_variates_travel_with_the_weights_and_are_counted(tmp_path: Path, fedavg: Path) -> None:
    plain, lines = metrics(fedavg), metrics(run(tmp_path, "scaffold", "Scaffold", comm_round=3))
    model = plain[0]["bytes_down"]
    assert lines[0]["bytes_down"] == model, "while all variates are zero none is sent"
    assert lines[1]["bytes_down"] == 2 * model
    assert lines[0]["bytes_up"] - plain[0]["bytes_up"] == model


def test_fedmmd_is_a_word_of_fedml_and_the_others_answer_to_our_prefix(tmp_path: Path) -> None:
    from tests.fedml_bridge.test_registry import project

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
