"""`local`: our local training, FedML's, and a bare PyTorch loop, on the same batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mrtf_fedml.algorithms.local_training import train_locally
from mrtf_fedml.config import ModelSettings, TrainSettings
from mrtf_fedml.config.sections import PrecisionName
from mrtf_fedml.data import TensorShard
from mrtf_fedml.models import match_layout
from mrtf_fedml.models.precision import FLOAT32, autocast
from mrtf_fedml.models.state_dict import snapshot
from mrtf_fedml.rng import fork_rng

from .measure import REPETITIONS, Row, alternate, ratio_row

#: Name, model (None is logistic regression), shape, samples of the client, batch size, calls per repetition.
_CLIENTS: tuple[tuple[str, str | None, tuple[int, ...], int, int, int], ...] = (
    ("logistic regression, 60 samples, batch 10", None, (784,), 60, 10, 100),
    ("mlp, 600 samples, batch 64", "mlp", (1, 28, 28), 600, 64, 4),
    ("lenet, 600 samples, batch 64", "lenet", (3, 28, 28), 600, 64, 4),
)
_SMALL = (("logistic regression, small", None, (16,), 20, 10, 1),)


def measure_local(quick: bool, precision: PrecisionName = FLOAT32) -> list[Row]:
    """Three rows per client: against a bare loop with gradient clipping, one without, and FedML's trainer.

    The loops compute in the same precision; FedML's trainer supports only float32.
    """
    rows: list[Row] = []
    for client in _SMALL if quick else _CLIENTS:
        rows += _measure_client(*client, repetitions=1 if quick else REPETITIONS, precision=precision)
    return rows


def _measure_client(
    name: str,
    model_name: str | None,
    shape: tuple[int, ...],
    samples: int,
    batch: int,
    calls: int,
    repetitions: int,
    precision: PrecisionName,
) -> list[Row]:
    from mrtf_fedml.models import create_model

    from .fedml_baseline import train_with_fedml

    with fork_rng(0, "bench", "local"):
        model: nn.Module = (
            nn.Linear(shape[0], 10)
            if model_name is None
            else create_model(ModelSettings(model=model_name), shape, 10, seed=0)
        )
        inputs, labels = torch.randn(samples, *shape), torch.randint(10, (samples,))
    shard = TensorShard(inputs, labels, np.arange(samples), batch)
    start = snapshot(model)
    settings = TrainSettings(epochs=1, batch_size=batch, learning_rate=0.03)
    laid_out = TensorShard(match_layout(model, inputs), labels, np.arange(samples), batch)
    batches = list(laid_out)

    def ours() -> None:
        for _ in range(calls):
            with autocast(precision, inputs.device):
                train_locally(model, start, laid_out, settings, seed=0, client=0, round_index=0)

    def bare() -> None:
        for _ in range(calls):
            with autocast(precision, inputs.device):
                _bare_loop(model, start, batches, settings, clips=False)

    def clipping() -> None:
        for _ in range(calls):
            with autocast(precision, inputs.device):
                _bare_loop(model, start, batches, settings, clips=True)

    def fedml() -> None:
        for _ in range(calls):
            train_with_fedml(model, start, shard, learning_rate=0.03)

    seconds = alternate({"ours": ours, "clipping": clipping, "bare": bare, "fedml": fedml}, repetitions)
    detail: dict[str, Any] = {"cpu_seconds": {way: [one / calls for one in seconds[way]] for way in seconds}}
    return [
        ratio_row(
            f"bare loop that clips: {name}",
            seconds["ours"],
            seconds["clipping"],
            "ours / bare loop, same optimiser, same clipping",
            **detail,
        ),
        ratio_row(f"bare loop: {name}", seconds["ours"], seconds["bare"], "ours / bare loop, same optimiser", **detail),
        ratio_row(
            f"FedML's: {name}", seconds["ours"], seconds["fedml"], "ours / ModelTrainerCLS (plain SGD)", **detail
        ),
    ]


def _bare_loop(
    model: nn.Module,
    start: dict[str, Tensor],
    batches: list[tuple[Tensor, Tensor]],
    settings: TrainSettings,
    clips: bool,
) -> None:
    """Only the steps: no shuffling, no record of the loss, no copy of the weights."""
    model.load_state_dict(start)
    model.train()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=settings.learning_rate, momentum=0.9, weight_decay=1e-5, fused=True
    )
    for inputs, labels in batches:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(inputs).float(), labels).backward()
        if clips and settings.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip_grad_norm)
        optimizer.step()
