"""`local`: our trainer beside FedML's and beside a bare PyTorch loop, on the same batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..algorithms.local_training import train_locally
from ..data import TensorShard
from ..models import in_layout
from ..models.precision import FLOAT32, computing
from ..models.weights import snapshot
from ..randomness import forked
from ..settings import ModelSettings, TrainSettings
from ..settings.precision import Word
from .measure import REPETITIONS, Row, by_turns, row_of

#: Name, model (None is logistic regression), shape, samples of the client, its batch, how often per repetition.
_CLIENTS: tuple[tuple[str, str | None, tuple[int, ...], int, int, int], ...] = (
    ("logistic regression, 60 samples, batch 10", None, (784,), 60, 10, 100),
    ("mlp, 600 samples, batch 64", "mlp", (1, 28, 28), 600, 64, 4),
    ("lenet, 600 samples, batch 64", "lenet", (3, 28, 28), 600, 64, 4),
)
_SMALL = (("logistic regression, small", None, (16,), 20, 10, 1),)


def local(quick: bool, precision: Word = FLOAT32) -> list[Row]:
    """Three rows per client: against the bare loop that clips as we do, the one that does not, and FedML's trainer.

    The loops compute in the same precision; FedML's knows float32 alone.
    """
    rows: list[Row] = []
    for client in _SMALL if quick else _CLIENTS:
        rows += _client(*client, repetitions=1 if quick else REPETITIONS, precision=precision)
    return rows


def _client(
    name: str,
    model_name: str | None,
    shape: tuple[int, ...],
    samples: int,
    batch: int,
    often: int,
    repetitions: int,
    precision: Word,
) -> list[Row]:
    from ..fedml_bridge.beside import fedml_training
    from ..models import create_model

    with forked(0, "bench", "local"):
        model: nn.Module = (
            nn.Linear(shape[0], 10)
            if model_name is None
            else create_model(ModelSettings(model=model_name), shape, 10, seed=0)
        )
        inputs, labels = torch.randn(samples, *shape), torch.randint(10, (samples,))
    shard = TensorShard(inputs, labels, np.arange(samples), batch)
    start = snapshot(model)
    settings = TrainSettings(epochs=1, batch_size=batch, learning_rate=0.03)
    laid = TensorShard(in_layout(model, inputs), labels, np.arange(samples), batch)
    batches = list(laid)

    def ours() -> None:
        for _ in range(often):
            with computing(precision, inputs.device):
                train_locally(model, start, laid, settings, seed=0, client=0, round_index=0)

    def bare() -> None:
        for _ in range(often):
            with computing(precision, inputs.device):
                _bare_loop(model, start, batches, settings, clips=False)

    def clipping() -> None:
        for _ in range(often):
            with computing(precision, inputs.device):
                _bare_loop(model, start, batches, settings, clips=True)

    def fedml() -> None:
        for _ in range(often):
            fedml_training(model, start, shard, learning_rate=0.03)

    taken = by_turns({"ours": ours, "clipping": clipping, "bare": bare, "fedml": fedml}, repetitions)
    detail: dict[str, Any] = {"cpu_seconds": {way: [one / often for one in taken[way]] for way in taken}}
    return [
        row_of(
            f"bare loop that clips: {name}",
            taken["ours"],
            taken["clipping"],
            "ours / bare loop, same optimiser, same clipping",
            **detail,
        ),
        row_of(f"bare loop: {name}", taken["ours"], taken["bare"], "ours / bare loop, same optimiser", **detail),
        row_of(f"FedML's: {name}", taken["ours"], taken["fedml"], "ours / ModelTrainerCLS (plain SGD)", **detail),
    ]


def _bare_loop(
    model: nn.Module,
    start: dict[str, Tensor],
    batches: list[tuple[Tensor, Tensor]],
    settings: TrainSettings,
    clips: bool,
) -> None:
    """Nothing but the steps: no shuffling, no loss kept, no copy handed out; gradients are clipped if asked for."""
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
