"""One round of MrTF with layers that are not mere weights: normalisation, dropout, tied weights, counters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fedml.runner import FedMLRunner
from safetensors.torch import load_file
from torch import Tensor, nn

import mrtf_fedml
from mrtf_fedml.fedml_bridge.fedml_init import initialize
from mrtf_fedml.rng import fork_rng
from tests.conftest import write_yaml
from tests.fedml_bridge.fedml_project import fedml_arguments

from .small_federation import config, eight

FEATURES, CLASSES = 12, 4


class Tied(nn.Module):
    """Two entries of the state dict that are one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, FEATURES, bias=False)
        self.again = nn.Linear(FEATURES, FEATURES, bias=False)
        self.again.weight = self.first.weight
        self.out = nn.Linear(FEATURES, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.out(torch.relu(self.again(torch.relu(self.first(inputs)))))


class Counting(nn.Module):
    """Buffers of integers and flags, changed by each forward in training."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("forwards", torch.zeros((), dtype=torch.int64))
        self.register_buffer("allowed", torch.ones(FEATURES, dtype=torch.bool))
        self.register_buffer("bytes", torch.arange(3, dtype=torch.uint8))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.forwards += 1
        return self.out(inputs * self.allowed)


def batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, CLASSES))


def group_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.GroupNorm(2, 6), nn.ReLU(), nn.Linear(6, CLASSES))


def dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.Dropout(0.5), nn.ReLU(), nn.Linear(6, CLASSES))


def layer_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.PReLU(), nn.LayerNorm(6), nn.Linear(6, CLASSES))


def run(folder: Path, model: nn.Module) -> dict[str, Tensor]:
    folder.mkdir()
    args = initialize(fedml_arguments(write_yaml(folder / "fedml_config.yaml", config(folder / "run", preset="tuned"))))
    mrtf_fedml.register()
    try:
        FedMLRunner(args, torch.device("cpu"), eight((FEATURES,), CLASSES), model).run()
    finally:
        mrtf_fedml.unregister()
    return load_file(folder / "run" / "model.safetensors")


@pytest.mark.parametrize("make", [batch_norm, group_norm, dropout, Tied, Counting, layer_norm])
def test_round_with_any_layer_is_reproducible_and_returns_every_entry(
    tmp_path: Path, make: Callable[[], nn.Module]
) -> None:
    results = []
    for name in ("first", "second"):
        with fork_rng(0, "weights"):
            model = make()
        shapes = {key: (tuple(value.shape), value.dtype) for key, value in model.state_dict().items()}
        torch.rand(3)
        results.append(run(tmp_path / name, model))
    first, second = results
    assert {key: (tuple(value.shape), value.dtype) for key, value in first.items()} == shapes
    assert all(torch.equal(first[key], second[key]) for key in first)
    files = [(tmp_path / name / "run" / "predictions.csv").read_bytes() for name in ("first", "second")]
    assert files[0] == files[1]


def test_tied_weights_stay_tied_after_a_round(tmp_path: Path) -> None:
    weights = run(tmp_path / "run", Tied())
    assert torch.equal(weights["first.weight"], weights["again.weight"])


def test_integer_buffers_count_and_flags_are_unchanged_after_a_round(tmp_path: Path) -> None:
    """One local step, then one of distillation."""
    weights = run(tmp_path / "run", Counting())
    assert weights["forwards"].item() == 2
    assert weights["allowed"].all()
    assert weights["bytes"].tolist() == [0, 1, 2]
