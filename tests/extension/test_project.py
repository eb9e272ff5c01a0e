"""In a FedML project after `register()`: by the word, by a pair, and what does not go together."""

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
from mrtf_fedml.algorithms import algorithm_named
from mrtf_fedml.data import load
from mrtf_fedml.fedml_bridge.arguments import settings_of
from mrtf_fedml.fedml_bridge.devices import device_of_run
from mrtf_fedml.fedml_bridge.offline import initialise
from mrtf_fedml.fedml_bridge.zoo import build_model
from tests.conftest import write_yaml
from tests.extension.conftest import STRANGER, WANDERER, everything, ran, scene
from tests.fedml_bridge.fedml_project import fedml_arguments

#: Keys that MrTF has too: each section keeps its own.
OWN = {"stranger_args": {"refine_steps": 2, "pull": 0.2}}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    mrtf_fedml.register()
    yield
    mrtf_fedml.unregister()


def project(folder: Path, config: dict[str, Any], **changed: Any) -> tuple[Any, Any, Any, Any]:
    """What a FedML program holds when it calls FedMLRunner."""
    config["common_args"]["run_dir"] = str(folder / "project")
    args = initialise(fedml_arguments(write_yaml(folder / "fedml_config.yaml", config)))
    vars(args).update(changed)
    settings = settings_of(args)
    dataset = load(settings)
    example = dataset.example_inputs
    model = build_model(settings.model, dataset.input_shape, dataset.class_num, settings.common.random_seed, example)
    return args, device_of_run(args), dataset, model


def test_by_its_path_and_by_its_name_it_is_the_run_of_the_command_line(tmp_path: Path) -> None:
    of_command_line = everything(ran(tmp_path, scene(sections=OWN)))
    for number, word in enumerate((STRANGER, "Stranger")):
        folder = tmp_path / str(number)
        folder.mkdir()
        FedMLRunner(*project(folder, scene(word, OWN))).run()
        assert everything(folder / "project") == of_command_line, word


def test_by_a_pair_and_a_program_that_sets_its_keys(tmp_path: Path) -> None:
    algorithm_named(STRANGER)
    args, device, dataset, model = project(tmp_path, scene("FedAvg", OWN), pull=0.4, epochs=2)
    trainer, aggregator = mrtf_fedml.StrangerTrainer(model, args), mrtf_fedml.StrangerAggregator(model, args)
    assert type(trainer).__name__ == "StrangerTrainer"
    FedMLRunner(args, device, dataset, model, trainer, aggregator).run()
    changed = {"stranger_args": {"refine_steps": 2, "pull": 0.4}}
    assert everything(tmp_path / "project") == everything(ran(tmp_path, scene(sections=changed, epochs=2)))
    train = yaml.safe_load((tmp_path / "project" / "config.yaml").read_text())["train_args"]
    assert train["federated_optimizer"] == STRANGER, "what ran, and not what the pair has won over"


@pytest.mark.parametrize("algorithm", ["FedProx", "FedMMD", "Scaffold", STRANGER, WANDERER])
def test_a_users_own_trainer_cannot_stand_in_for_another_client_rule(tmp_path: Path, algorithm: str) -> None:
    word = f"mrtf:{algorithm}" if ":" not in algorithm else algorithm
    args, device, dataset, model = project(tmp_path, scene(word))
    with pytest.raises(UserError, match=r"clients do more than train, so ModelTrainerCLS cannot stand in for them"):
        FedMLRunner(args, device, dataset, model, ModelTrainerCLS(model, args))


def test_nor_for_that_of_a_base(tmp_path: Path) -> None:
    args, device, dataset, model = project(tmp_path, scene("MrTF", base="Scaffold"))
    with pytest.raises(UserError, match=r"MrTF's clients do more than train"):
        FedMLRunner(args, device, dataset, model, ModelTrainerCLS(model, args))


def test_a_pair_of_two_algorithms_is_refused(tmp_path: Path) -> None:
    algorithm_named(STRANGER)
    args, device, dataset, model = project(tmp_path, scene("MrTF"))
    pair = mrtf_fedml.StrangerTrainer(model, args), mrtf_fedml.MrTFAggregator(model, args)
    with pytest.raises(UserError, match=r"the trainer is Stranger's and the aggregator MrTF's"):
        FedMLRunner(args, device, dataset, model, *pair)


class WithAlgorithm(ModelTrainerCLS):
    """A trainer of FedML's kind, to which the word means something else."""

    algorithm = "my own"


def test_a_trainer_with_an_attribute_algorithm_is_a_trainer_like_any(tmp_path: Path) -> None:
    args, device, dataset, model = project(tmp_path, scene("MrTF", comm_round=1, weight_decay=0.0))
    FedMLRunner(args, device, dataset, model, WithAlgorithm(model, args)).run()
    assert (tmp_path / "project" / "predictions.csv").exists()
