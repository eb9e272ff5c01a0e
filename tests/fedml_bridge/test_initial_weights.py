"""`model_args.initial_weights`: a run that starts from given weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor

import mrtf_fedml
from mrtf_fedml.config import ModelSettings, RunSettings
from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.runner import RunOptions, run_configuration
from mrtf_fedml.models import create_model
from tests.conftest import small_config


class FirstWeights(mrtf_fedml.Callback):
    """Keeps the weights with which the first round of this process begins."""

    weights: dict[str, Tensor] | None = None

    def on_round_begin(self, run: Any, clients: Any) -> None:
        if self.weights is None:
            self.weights = {key: tensor.clone() for key, tensor in run.state.weights.items()}


def given_weights(seed: int = 9) -> dict[str, Tensor]:
    settings = ModelSettings(model="mlp", hidden_size=8, feature_size=4)
    return create_model(settings, (1, 8, 8), 10, seed).state_dict()


def start(folder: Path, name: str = "run", resume: bool = False, **changes: Any) -> tuple[Path, FirstWeights]:
    changes = {"model": "mlp", "hidden_size": 8, "feature_size": 4, "comm_round": 1, "refine_steps": 1, **changes}
    config, callback, run_dir = small_config(run_dir=str(folder / name), **changes), FirstWeights(), folder / name
    options = RunOptions(progress=False, callbacks=[callback], resume=str(run_dir) if resume else None)
    run_configuration(RunSettings.from_config(config), options)
    return run_dir, callback


def test_run_starts_from_the_weights_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "start.safetensors"
    save_file(given_weights(), file)
    run_dir, callback = start(tmp_path, initial_weights=str(file))
    assert callback.weights is not None
    assert all(torch.equal(callback.weights[key], tensor) for key, tensor in given_weights().items())
    resumed = yaml.safe_load((run_dir / "config.yaml").read_text())
    assert resumed["model_args"]["initial_weights"] == str(file)


def test_run_starts_from_the_model_of_an_earlier_run(tmp_path: Path) -> None:
    first, _ = start(tmp_path)
    _, callback = start(tmp_path, "second", initial_weights=str(first), random_seed=7)
    assert callback.weights is not None
    earlier = load_file(first / "model.safetensors")
    assert all(torch.equal(callback.weights[key], tensor) for key, tensor in earlier.items())


def test_resumed_run_continues_from_its_checkpoint_without_the_file(tmp_path: Path) -> None:
    file = tmp_path / "start.pt"
    torch.save(given_weights(), file)
    run_dir, _ = start(tmp_path, initial_weights=str(file))
    file.unlink()
    start(tmp_path, resume=True, initial_weights=str(file), comm_round=2)
    whole, _ = start(tmp_path, "whole", comm_round=2, initial_weights=str(save_again(file)))
    assert (run_dir / "predictions.csv").read_bytes() == (whole / "predictions.csv").read_bytes()


def save_again(file: Path) -> Path:
    torch.save(given_weights(), file)
    return file


@pytest.mark.parametrize(("changes", "named"), [({"hidden_size": 9}, "8, 8|8, 64"), ({"model": "linear"}, "unknown")])
def test_weights_of_another_model_are_an_error_and_leave_no_run_directory(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    file = tmp_path / "other.safetensors"
    save_file(given_weights(), file)
    with pytest.raises(UserError, match=rf"initial_weights.*other\.safetensors.*({named})"):
        start(tmp_path, initial_weights=str(file), **changes)
    assert not (tmp_path / "run").exists()


def test_earlier_run_with_other_classes_is_an_error(tmp_path: Path) -> None:
    first, _ = start(tmp_path)
    x, y = torch.rand(30, 1, 8, 8), torch.arange(30) % 10
    with pytest.raises(UserError, match=r"initial_weights.*classes"):
        mrtf_fedml.label(
            x,
            [(x, [f"class {int(value)}" for value in y])],
            "mlp",
            1,
            hidden_size=8,
            feature_size=4,
            initial_weights=str(first),
        )
