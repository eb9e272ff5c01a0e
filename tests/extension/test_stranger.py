"""A user's algorithm, one class in one file, works like a built-in one."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import load_file
from torch import nn

import mrtf_fedml
from mrtf_fedml import ClientTask, ClientUpdate
from mrtf_fedml.cli import main
from tests.conftest import read_metrics
from tests.extension.conftest import NET, STRANGER, comparable_outputs, extension_config, output_bytes, run_config

OWN = {"stranger_args": {"pull": 0.2, "voting": "hard", "careful": False}}


def test_run_by_path_and_by_name_gives_equal_outputs(tmp_path: Path) -> None:
    by_path = run_config(tmp_path, extension_config(sections=OWN), "path")
    assert [line["round"] for line in read_metrics(by_path)] == [0, 1, 2]
    for line in read_metrics(by_path):
        assert 0 < line["disagreement"] < 1
        assert line["vote_loss"] > 0
        assert 0 < line["acc_votes"] < 1
    resolved = yaml.safe_load((by_path / "config.yaml").read_text())
    assert resolved["stranger_args"] == {
        "pull": 0.2,
        "patience": 2,
        "careful": False,
        "voting": "hard",
        "refine_steps": 4,
        "refine_lr": 0.002,
        "refine_batch_size": 64,
    }
    from tests.extension.stranger import Stranger

    mrtf_fedml.register_algorithm(Stranger)
    by_name = run_config(tmp_path, extension_config("stranger", OWN), "name")
    assert comparable_outputs(by_name) == comparable_outputs(by_path)
    named = yaml.safe_load((by_name / "config.yaml").read_text())["train_args"]["federated_optimizer"]
    assert named == STRANGER, "another process does not know the short name"
    assert comparable_outputs(run_config(tmp_path, extension_config(), "defaults")) != comparable_outputs(by_path), (
        "its keys have an effect"
    )


def test_resume_with_changed_settings_records_changes(tmp_path: Path) -> None:
    run_dir = run_config(tmp_path, extension_config(comm_round=1, learning_rate=0.05))
    changes = ("comm_round=2", "pull=0.9", "learning_rate=0.2")
    assert main(["run", "--resume", str(run_dir), *(word for change in changes for word in ("--set", change))]) == 0
    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    assert (config["stranger_args"]["pull"], config["train_args"]["learning_rate"]) == (0.9, 0.2), "what holds now"
    assert config["resumes"] == {
        "1": {
            "train_args.comm_round": {"from": 1, "to": 2},
            "train_args.learning_rate": {"from": 0.05, "to": 0.2},
            "stranger_args.pull": {"from": 0.05, "to": 0.9},
        }
    }
    page = (run_dir / "report.html").read_text()
    assert "The run was stopped after round 1 and resumed with other settings" in page
    assert "<code>stranger_args.pull</code> = 0.9 (was 0.05)" in page


def test_report_names_algorithm_and_metrics(tmp_path: Path) -> None:
    page = (run_config(tmp_path, extension_config(comm_round=2)) / "report.html").read_text()
    assert "599 samples labelled" in page
    assert "disagreement" in page, "its metrics have a curve"


class ReturnsOwnValues(mrtf_fedml.Algorithm):
    """Returns other weights than the model's and another count than the shard's."""

    name = "ReturnsOwnValues"

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        update = super().train_client(model, task)
        weights = {key: torch.full_like(value, task.client) for key, value in update.weights.items()}
        return ClientUpdate(task.client, 1 + task.client, weights, loss=None)


class ReturnsModelTensors(mrtf_fedml.Algorithm):
    """Returns the model's tensors without a copy: the next client trains in them."""

    name = "ReturnsModelTensors"

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        update = super().train_client(model, task)
        return replace(update, weights=model.state_dict())


class CountsNoRounds(mrtf_fedml.Algorithm):
    """Sets the round to zero after each update."""

    name = "CountsNoRounds"

    def server_update(self, state: Any, updates: Any, aggregated: Any, server: Any) -> Any:
        after, report = super().server_update(state, updates, aggregated, server)
        return replace(after, round=0), report


def test_returned_update_is_what_is_sent(tmp_path: Path) -> None:
    module = "tests.extension.test_stranger"
    run_dir = run_config(
        tmp_path, extension_config(f"{module}:ReturnsOwnValues", comm_round=1, aggregation="samples"), "own-values"
    )
    (line,) = read_metrics(run_dir)
    assert line["train_loss"] is None
    counts = [1 + client for client in line["clients"]]
    mean = sum(count * client for count, client in zip(counts, line["clients"], strict=True)) / sum(counts)
    model = load_file(run_dir / "model.safetensors")
    torch.testing.assert_close(model["head.bias"], torch.full((10,), mean))
    assert int(model["body.2.num_batches_tracked"]) == max(line["clients"])


def test_client_rule_may_return_model_tensors_without_counts(tmp_path: Path) -> None:
    module = "tests.extension.test_stranger"
    plain = run_config(tmp_path, extension_config("FedAvg", comm_round=2), "plain")
    for name in ("ReturnsModelTensors", "CountsNoRounds"):
        assert output_bytes(
            run_config(tmp_path, extension_config(f"{module}:{name}", comm_round=2), name)
        ) == output_bytes(plain)


@dataclass(frozen=True)
class NestedSettings:
    """Kinds of values that YAML has no word for."""

    layers: tuple[int, ...] = (1, 2)
    folder: Path = Path("here")


class Nested(mrtf_fedml.Algorithm):
    """Its keys are written into config.yaml all the same."""

    name = "Nested"
    Settings = NestedSettings


def test_settings_of_any_type_are_stored_and_read(tmp_path: Path) -> None:
    config = extension_config("tests.extension.test_stranger:Nested", {"nested_args": {"layers": [3]}}, comm_round=1)
    run_dir = run_config(tmp_path, config)
    assert yaml.safe_load((run_dir / "config.yaml").read_text())["nested_args"] == {"layers": [3], "folder": "here"}
    assert main(["run", "--resume", str(run_dir), "--set", "comm_round=2"]) == 0
    assert json.loads((run_dir / "summary.json").read_text())["rounds"] == 2
    assert NET in (run_dir / "config.yaml").read_text()


class NegatesLogits(mrtf_fedml.Algorithm):
    """Predicts the opposite of its model."""

    name = "NegatesLogits"

    def prediction_logits(self, state: mrtf_fedml.ServerState, server: mrtf_fedml.ServerContext) -> torch.Tensor:
        return -super().prediction_logits(state, server)


def test_prediction_logits_can_be_overridden(tmp_path: Path) -> None:
    plain = run_config(tmp_path, extension_config("FedAvg"), "plain")
    contrary = run_config(tmp_path, extension_config("tests.extension.test_stranger:NegatesLogits"), "contrary")
    assert output_bytes(plain)[1] == output_bytes(contrary)[1], "the model is the same"
    predicted, corrected = (np.load(run / "probabilities.npy") for run in (plain, contrary))
    assert (predicted.argmax(axis=1) == corrected.argmin(axis=1)).all()
    assert read_metrics(contrary)[-1]["acc"] < read_metrics(plain)[-1]["acc"]
