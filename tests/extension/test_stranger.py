"""An algorithm that the package has never seen: one class in one file, as good as our own in every place."""

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
from tests.conftest import metrics
from tests.extension.conftest import NET, STRANGER, answer, everything, ran, scene

OWN = {"stranger_args": {"pull": 0.2, "voting": "hard", "careful": False}}


def test_it_runs_by_its_path_and_by_its_name_with_what_is_its_own(tmp_path: Path) -> None:
    by_path = ran(tmp_path, scene(sections=OWN), "path")
    assert [line["round"] for line in metrics(by_path)] == [0, 1, 2]
    for line in metrics(by_path):
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
    by_name = ran(tmp_path, scene("stranger", OWN), "name")
    assert everything(by_name) == everything(by_path)
    named = yaml.safe_load((by_name / "config.yaml").read_text())["train_args"]["federated_optimizer"]
    assert named == STRANGER, "a resume in another process knows no short name"
    assert everything(ran(tmp_path, scene(), "defaults")) != everything(by_path), "its keys have an effect"


def test_what_a_resume_changes_is_written_down_with_its_round(tmp_path: Path) -> None:
    run_dir = ran(tmp_path, scene(comm_round=1, learning_rate=0.05))
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
    assert "stranger_args.pull became 0.9 (was 0.05)" in page


def test_it_is_named_in_the_report(tmp_path: Path) -> None:
    page = (ran(tmp_path, scene(comm_round=2)) / "report.html").read_text()
    assert "Stranger labelled 599 samples" in page
    assert "disagreement" in page, "what it measures has a curve"


class Liar(mrtf_fedml.Algorithm):
    """What it returns is neither what the model holds, nor what the shard counts."""

    name = "Liar"

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        update = super().train_client(model, task)
        told = {key: torch.full_like(value, task.client) for key, value in update.weights.items()}
        return ClientUpdate(task.client, 1 + task.client, told, loss=None)


class Lender(mrtf_fedml.Algorithm):
    """Returns the model's own tensors, as they are: the next client trains in them."""

    name = "Lender"

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        update = super().train_client(model, task)
        return replace(update, weights=model.state_dict())


class Forgetful(mrtf_fedml.Algorithm):
    """Counts no rounds."""

    name = "Forgetful"

    def finish_round(self, state: Any, updates: Any, aggregated: Any, bench: Any) -> Any:
        after, report = super().finish_round(state, updates, aggregated, bench)
        return replace(after, round=0), report


def test_what_train_client_returns_is_what_is_sent(tmp_path: Path) -> None:
    module = "tests.extension.test_stranger"
    run_dir = ran(tmp_path, scene(f"{module}:Liar", comm_round=1, aggregation="samples"), "liar")
    (line,) = metrics(run_dir)
    assert line["local_loss"] is None
    counts = [1 + client for client in line["clients"]]
    mean = sum(count * client for count, client in zip(counts, line["clients"], strict=True)) / sum(counts)
    model = load_file(run_dir / "model.safetensors")
    torch.testing.assert_close(model["head.bias"], torch.full((10,), mean))
    assert int(model["body.2.num_batches_tracked"]) == max(line["clients"])


def test_a_rule_may_return_the_models_own_tensors_and_leave_the_counting_to_the_loop(tmp_path: Path) -> None:
    module = "tests.extension.test_stranger"
    plain = ran(tmp_path, scene("FedAvg", comm_round=2), "plain")
    for name in ("Lender", "Forgetful"):
        assert answer(ran(tmp_path, scene(f"{module}:{name}", comm_round=2), name)) == answer(plain)


@dataclass(frozen=True)
class NestedSettings:
    """Kinds of values that YAML has no word for."""

    layers: tuple[int, ...] = (1, 2)
    folder: Path = Path("here")


class Nested(mrtf_fedml.Algorithm):
    """Its keys are written into config.yaml all the same."""

    name = "Nested"
    Settings = NestedSettings


def test_keys_of_any_kind_are_written_down_and_read_again(tmp_path: Path) -> None:
    config = scene("tests.extension.test_stranger:Nested", {"nested_args": {"layers": [3]}}, comm_round=1)
    run_dir = ran(tmp_path, config)
    assert yaml.safe_load((run_dir / "config.yaml").read_text())["nested_args"] == {"layers": [3], "folder": "here"}
    assert main(["run", "--resume", str(run_dir), "--set", "comm_round=2"]) == 0
    assert json.loads((run_dir / "summary.json").read_text())["rounds"] == 2
    assert NET in (run_dir / "config.yaml").read_text()


class Contrary(mrtf_fedml.Algorithm):
    """Answers the opposite of what its model says."""

    name = "Contrary"

    def answer_logits(self, state: mrtf_fedml.ServerState, bench: mrtf_fedml.ServerBench) -> torch.Tensor:
        return -super().answer_logits(state, bench)


def test_an_algorithm_may_correct_what_its_model_answers(tmp_path: Path) -> None:
    plain = ran(tmp_path, scene("FedAvg"), "plain")
    contrary = ran(tmp_path, scene("tests.extension.test_stranger:Contrary"), "contrary")
    assert answer(plain)[1] == answer(contrary)[1], "the model is the same"
    said, corrected = (np.load(run / "probabilities.npy") for run in (plain, contrary))
    assert (said.argmax(axis=1) == corrected.argmin(axis=1)).all()
    assert metrics(contrary)[-1]["acc"] < metrics(plain)[-1]["acc"]
