"""Random inputs of the refinery, with the awkward ones among them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from mrtf_fedml.algorithms.mrtf import ComponentMemory, distillation_targets
from mrtf_fedml.algorithms.mrtf.components import RoundTargets

from . import oracle

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-10}
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float32", "float64"])

#: All sixteen settings of the four switches.
SWITCHES: list[dict[str, Any]] = [
    {"teacher": teacher, "teacher_weighting": weighting, "self_teaching": taught, "cluster_refinery": clustered}
    for teacher, weighting, taught, clustered in itertools.product(
        ("avg_prob", "avg_logit"), ("entropy", "uniform"), (True, False), (True, False)
    )
]

#: The numeric settings, with the paper's values.
PAPER_NUMBERS: dict[str, Any] = {
    "temperature": 4.0,
    "class_balance": 0.0,
    "cluster_temperature": 4.0,
}


@dataclass
class Case:
    local_logits: torch.Tensor
    global_logits: torch.Tensor | None
    features: torch.Tensor | None
    train_loss: float

    def tensors(self) -> list[torch.Tensor]:
        given = (self.local_logits, self.global_logits, self.features)
        return [tensor for tensor in given if tensor is not None]

    def expected(self, switches: dict[str, Any]) -> oracle.Targets:
        given = (self.local_logits, self.global_logits, self.features)
        arrays = (None if tensor is None else tensor.double().numpy() for tensor in given)
        return oracle.distillation_targets(*arrays, self.train_loss, {**PAPER_NUMBERS, **switches})


def targets_of(case: Case, **mrtf_args: Any) -> RoundTargets:
    """What MrTF with these settings makes of the case."""
    given = (case.local_logits, case.global_logits, case.features, case.train_loss)
    return distillation_targets(mrtf_args, *given)


def targets_of_logits(
    logits: torch.Tensor, loss: float, memory: ComponentMemory | None = None, **mrtf_args: Any
) -> RoundTargets:
    """The same of local logits alone."""
    return distillation_targets(mrtf_args, logits, None, None, loss, memory)


def complete_case(seed: int, dtype: torch.dtype = torch.float64, shape: tuple[int, ...] = (5, 11, 6, 4)) -> Case:
    """A case that lacks nothing and in which every part has something to do; shape is (K, M, C, D)."""
    clients, samples, classes, width = shape
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.uniform(-1, 1, (clients, 1, 1))
    return Case(
        torch.tensor(rng.normal(size=(clients, samples, classes)) * scales, dtype=dtype),
        torch.tensor(rng.normal(size=(2, samples, classes)), dtype=dtype),
        torch.tensor(rng.normal(size=(samples, width)), dtype=dtype),
        0.4 * float(np.log(classes)),
    )


def random_case(rng: np.random.Generator, dtype: torch.dtype) -> Case:
    """Any shape; sometimes a constant model, a zero feature vector, no globals, no features, an odd loss."""
    shape = (rng.integers(1, 8), rng.integers(1, 41), rng.integers(2, 13), rng.integers(1, 10))
    clients, samples, classes, width = (int(size) for size in shape)
    scales = 10.0 ** rng.uniform(-2, 2, (clients, 1, 1))
    local = rng.normal(size=(clients, samples, classes)) * scales + rng.normal(size=(clients, 1, 1))
    if rng.random() < 0.2:
        local[rng.integers(clients)] = rng.normal()
    taught = rng.normal(size=(2, samples, classes)) * 10.0 ** rng.uniform(-2, 2)
    features = np.maximum(rng.normal(size=(samples, width)) + 0.5, 0) * 10.0 ** rng.uniform(-3, 3)
    return Case(
        torch.tensor(local, dtype=dtype),
        torch.tensor(taught, dtype=dtype) if rng.random() < 0.85 else None,
        torch.tensor(features, dtype=dtype) if rng.random() < 0.85 else None,
        float(rng.uniform(0, 1.3) * np.log(classes)),
    )


def random_numbers(rng: np.random.Generator) -> dict[str, Any]:
    """Temperatures around the paper's, and every other time classes brought nearer to each other."""
    return {
        "temperature": float(rng.uniform(0.25, 12)),
        "cluster_temperature": float(rng.uniform(0.25, 12)),
        "class_balance": float(rng.choice([0.0, rng.uniform(0, 1)])),
    }
