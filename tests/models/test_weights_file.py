"""`read_weights`: state dicts in files, and files that are none."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from mrtf_fedml.errors import UserError
from mrtf_fedml.models.weights_file import read_weights

WEIGHTS = OrderedDict(weight=torch.arange(6.0).reshape(2, 3), steps=torch.tensor(4))


def write(folder: Path, name: str, content: object = WEIGHTS) -> Path:
    path = folder / name
    if path.suffix == ".safetensors":
        save_file(dict(WEIGHTS), path)
    else:
        torch.save(content, path)
    return path


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt", "w.pth", "w.bin"])
def test_read_weights_returns_the_tensors_of_each_format(tmp_path: Path, name: str) -> None:
    read = read_weights(write(tmp_path, name), "model_args.initial_weights")
    assert set(read) == set(WEIGHTS)
    assert all(torch.equal(read[key], tensor) for key, tensor in WEIGHTS.items())


def test_read_weights_finds_the_state_dict_in_a_training_checkpoint(tmp_path: Path) -> None:
    path = write(tmp_path, "checkpoint.pth", {"epoch": 3, "state_dict": WEIGHTS})
    assert torch.equal(read_weights(path, "k")["weight"], WEIGHTS["weight"])


def test_read_weights_of_a_pickled_module_is_an_error_and_executes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.pth"):
        read_weights(write(tmp_path, "model.pth", nn.Linear(2, 2)), "k")


@pytest.mark.parametrize("content", [[torch.zeros(2)], {}, {"a": 1}])
def test_read_weights_of_something_else_is_an_error_that_names_the_key(tmp_path: Path, content: object) -> None:
    with pytest.raises(UserError, match=r"model_args\.initial_weights.*other\.pt"):
        read_weights(write(tmp_path, "other.pt", content), "model_args.initial_weights")


def test_read_weights_with_nan_is_an_error_that_names_the_entry(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'weight'"):
        read_weights(write(tmp_path, "nan.pt", {"weight": torch.tensor([float("nan")])}), "k")


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
def test_read_weights_of_truncated_file_is_an_error(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=name):
        read_weights(path, "k")


@pytest.mark.parametrize("name", ["missing.pt", "weights.txt", ""])
def test_read_weights_of_missing_file_folder_or_other_type_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "weights.txt").write_text("0.1 0.2")
    with pytest.raises(UserError, match=name or tmp_path.name):
        read_weights(tmp_path / name, "k")
