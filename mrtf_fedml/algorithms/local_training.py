"""What every client does: some epochs of SGD on its own samples."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..models.weights import load, snapshot
from ..randomness import forked, torch_generator
from ..settings import TrainSettings
from .round import Weights


def train_locally(
    model: nn.Module,
    start: Weights,
    data: Iterable[Any],
    settings: TrainSettings,
    seed: int,
    client: int,
    round_index: int,
) -> tuple[OrderedDict[str, Tensor], float]:
    """theta_{t,k} and L_{t,k}: `epochs` passes over the client's samples, from theta_t.

    Every draw belongs to this client in this round, so the result does not depend on the process that trains it,
    nor on who was trained there before.

    Args:
        model: reusable; its weights are overwritten.
        start: theta_t.
        data: a shard with `shuffled_batches(generator)`, or any re-iterable of (x, y) batches.
        settings: optimiser, rates, epochs.
        seed: the run's.
        client: k.
        round_index: t.

    Returns:
        the trained weights as clones, and the mean loss over all samples of all epochs as trained.
    """
    load(model, start)
    model.train()
    device = next(model.parameters()).device
    optimizer = local_optimizer(model, settings)
    generator = torch_generator(seed, "batches", client, round_index)
    total, samples = torch.zeros((), dtype=torch.float64, device=device), 0
    with forked(seed, "local training", client, round_index):
        for _ in range(settings.epochs):
            for inputs, labels in _epoch(data, generator):
                inputs, labels = inputs.to(device), labels.to(device).long()
                optimizer.zero_grad(set_to_none=True)
                loss = _cross_entropy(model(inputs), labels)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), settings.clip_grad_norm)
                optimizer.step()
                total += loss.detach() * len(labels)
                samples += len(labels)
    if samples == 0:
        raise UserError(f"client {client} has no training sample; give it some or lower client_num_in_total")
    return snapshot(model), float(total) / samples


def local_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    """The clients' optimiser; the paper's is SGD with momentum 0.9."""
    if settings.client_optimizer == "adam":
        return torch.optim.Adam(
            model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
        )
    return torch.optim.SGD(
        model.parameters(),
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over the samples, and over their positions where the model answers at each: [N, C, T], [N, T]."""
    if logits.dim() < 2 or (logits.shape[0], *logits.shape[2:]) != tuple(labels.shape):
        raise UserError(
            f"the model gives logits of the shape {tuple(logits.shape)} for labels of the shape {tuple(labels.shape)}; "
            "[N, C] goes with one label a sample, [N, C, T] with one at each of T positions"
        )
    return nn.functional.cross_entropy(logits, labels)


def _epoch(data: Any, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    # A user's own loader shuffles as it likes, from the global state that the caller has forked and seeded.
    return data.shuffled_batches(generator) if hasattr(data, "shuffled_batches") else iter(data)
