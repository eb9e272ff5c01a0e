"""Federations of a few samples, for one round of MrTF with models of any kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mrtf_fedml.config import RunSettings
from mrtf_fedml.data import from_fedml
from mrtf_fedml.fedml_bridge.runner import run_configuration
from tests.conftest import small_config

CLIENTS, SAMPLES, SERVER_SAMPLES = 2, 8, 6


def eight(shape: tuple[int, ...], classes: int, vocabulary: int | None = None, positions: bool = False) -> list[Any]:
    """FedML's eight entries: two clients of 8 samples and a server of 6, normal images or random texts."""
    generator = torch.Generator().manual_seed(0)

    def inputs(samples: int) -> Tensor:
        if vocabulary is not None:
            return torch.randint(vocabulary, (samples, *shape), generator=generator)
        return torch.randn(samples, *shape, generator=generator)

    def labels(samples: int) -> Tensor:
        size = (samples, *shape) if positions else (samples,)
        return torch.randint(classes, size, generator=generator)

    shards = {client: [(inputs(SAMPLES), labels(SAMPLES))] for client in range(CLIENTS)}
    server = [(inputs(SERVER_SAMPLES), labels(SERVER_SAMPLES))]
    counts = dict.fromkeys(shards, SAMPLES)
    return [CLIENTS * SAMPLES, SERVER_SAMPLES, None, server, counts, shards, dict.fromkeys(shards), classes]


def config(run_dir: Path, **changes: Any) -> dict[str, dict[str, Any]]:
    """One round of all clients, one step of refinery, clustering included."""
    given: dict[str, Any] = {
        "client_num_in_total": CLIENTS,
        "client_num_per_round": CLIENTS,
        "comm_round": 1,
        "learning_rate": 0.01,
        "refine_steps": 1,
        "refine_batch_size": SERVER_SAMPLES,
        "cluster_warmup": 0,
    }
    return small_config(run_dir=str(run_dir), **{**given, **changes})


def one_round(run_dir: Path, dataset: list[Any], **changes: Any) -> Path:
    """The directory of a finished run."""
    sections = config(run_dir, **changes)
    run_dir = run_configuration(RunSettings.from_config(sections), dataset=from_fedml(dataset)).run_dir
    assert run_dir is not None
    return run_dir


def metrics(run_dir: Path) -> dict[str, Any]:
    """The one line of metrics.jsonl."""
    line: dict[str, Any] = json.loads((run_dir / "metrics.jsonl").read_text())
    return line
