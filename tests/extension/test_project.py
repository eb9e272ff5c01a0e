"""A user's algorithm in a FedML project after `register()`: by name, by adapters, and invalid combinations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fedml.ml.trainer.my_model_trainer_classification import ModelTrainerCLS
from fedml.runner import FedMLRunner

import mrtf_fedml
from mrtf_fedml import UserError
from mrtf_fedml.algorithms import algorithm_by_name
from mrtf_fedml.data import load
from mrtf_fedml.fedml_bridge.args import settings_of
from mrtf_fedml.fedml_bridge.devices import select_device
from mrtf_fedml.fedml_bridge.fedml_init import initialize
from mrtf_fedml.fedml_bridge.model_zoo import build_model
from tests.conftest import write_yaml
from tests.extension.conftest import STRANGER, WANDERER, comparable_outputs, extension_config, run_config
from tests.fedml_bridge.fedml_project import fedml_arguments

#: Keys that MrTF has too: each section keeps its own.
OWN = {"stranger_args": {"refine_steps": 2, "pull": 0.2}}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    mrtf_fedml.register()
    yield
    mrtf_fedml.unregister()


def project(folder: Path, config: dict[str, Any], **changed: Any) -> tuple[Any, Any, Any, Any]:
    """The arguments with which a FedML program calls FedMLRunner."""
    config["common_args"]["run_dir"] = str(folder / "project")
    args = initialize(fedml_arguments(write_yaml(folder / "fedml_config.yaml", config)))
    vars(args).update(changed)
    settings = settings_of(args)
    dataset = load(settings)
    example = dataset.example_inputs
    model = build_model(settings.model, dataset.input_shape, dataset.class_num, settings.common.random_seed, example)
    return args, select_device(args), dataset, model


def test_fedml_project_gives_outputs_of_command_line(tmp_path: Path) -> None:
    of_command_line = comparable_outputs(run_config(tmp_path, extension_config(sections=OWN)))
    for number, word in enumerate((STRANGER, "Stranger")):
        folder = tmp_path / str(number)
        folder.mkdir()
        FedMLRunner(*project(folder, extension_config(word, OWN))).run()
        assert comparable_outputs(folder / "project") == of_command_line, word


def test_adapters_with_changed_args_give_outputs_of_changed_settings(tmp_path: Path) -> None:
    algorithm_by_name(STRANGER)
    args, device, dataset, model = project(tmp_path, extension_config("FedAvg", OWN), pull=0.4, epochs=2)
    trainer, aggregator = mrtf_fedml.StrangerTrainer(model, args), mrtf_fedml.StrangerAggregator(model, args)
    assert type(trainer).__name__ == "StrangerTrainer"
    FedMLRunner(args, device, dataset, model, trainer, aggregator).run()
    changed = {"stranger_args": {"refine_steps": 2, "pull": 0.4}}
    assert comparable_outputs(tmp_path / "project") == comparable_outputs(
        run_config(tmp_path, extension_config(sections=changed, epochs=2))
    )
    train = yaml.safe_load((tmp_path / "project" / "config.yaml").read_text())["train_args"]
    assert train["federated_optimizer"] == STRANGER, "the algorithm that ran, not the configured one"


@pytest.mark.parametrize("algorithm", ["FedProx", "FedMMD", "Scaffold", STRANGER, WANDERER])
def test_own_trainer_with_algorithm_of_other_client_rule_is_rejected(tmp_path: Path, algorithm: str) -> None:
    word = f"mrtf:{algorithm}" if ":" not in algorithm else algorithm
    args, device, dataset, model = project(tmp_path, extension_config(word))
    with pytest.raises(UserError, match="ModelTrainerCLS"):
        FedMLRunner(args, device, dataset, model, ModelTrainerCLS(model, args))


def test_own_trainer_with_base_of_other_client_rule_is_rejected(tmp_path: Path) -> None:
    args, device, dataset, model = project(tmp_path, extension_config("MrTF", base="Scaffold"))
    with pytest.raises(UserError, match="ModelTrainerCLS"):
        FedMLRunner(args, device, dataset, model, ModelTrainerCLS(model, args))


def test_trainer_and_aggregator_of_two_algorithms_are_rejected(tmp_path: Path) -> None:
    algorithm_by_name(STRANGER)
    args, device, dataset, model = project(tmp_path, extension_config("MrTF"))
    pair = mrtf_fedml.StrangerTrainer(model, args), mrtf_fedml.MrTFAggregator(model, args)
    with pytest.raises(UserError, match=r"the trainer is Stranger's and the aggregator MrTF's"):
        FedMLRunner(args, device, dataset, model, *pair)


class WithAlgorithm(ModelTrainerCLS):
    """A trainer of FedML's kind, to which the word means something else."""

    algorithm = "my own"


def test_own_trainer_with_attribute_algorithm_runs(tmp_path: Path) -> None:
    args, device, dataset, model = project(tmp_path, extension_config("MrTF", comm_round=1, weight_decay=0.0))
    FedMLRunner(args, device, dataset, model, WithAlgorithm(model, args)).run()
    assert (tmp_path / "project" / "predictions.csv").exists()
