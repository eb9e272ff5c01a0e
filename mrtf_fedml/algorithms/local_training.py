"""What every client does: some epochs of SGD on its own samples."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..models.layout import as_laid_out, lay_out
from ..models.lone_sample import running_statistics
from ..models.weights import load, snapshot
from ..phases import LOCAL, phase
from ..randomness import forked, torch_generator
from ..refinery.clipping import clip_gradients
from ..settings import TrainSettings
from .exchange import Weights
from .local_sgd import LocalSGD

#: As the authors' program counts: so many batches at the least, and one more than it has counted.
_LEAST_BATCHES = 5


class LocalTerm:
    """What an algorithm adds to a client's SGD; this one adds nothing.

    One object serves one client in one round, so it may count and keep.
    """

    def forward(self, model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """The logits, and what is added to the batch's loss, if anything."""
        return model(inputs), None

    def correct_gradients(self, model: nn.Module) -> None:
        """Change the batch's gradients in place, before they are clipped and a step is made."""


def train_locally(
    model: nn.Module,
    start: Weights,
    data: Iterable[Any],
    settings: TrainSettings,
    seed: int,
    client: int,
    round_index: int,
    term: LocalTerm | None = None,
    released: bool = False,
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
        term: what the algorithm adds to the loss or to the gradients.
        released: train on one batch more than that, and on six at least, and count every batch of the loss the same,
            as the authors' program does.

    Returns:
        the trained weights as clones, and the mean cross-entropy over all samples of all epochs as trained, to which
        the term adds nothing.
    """
    term = term or LocalTerm()
    layout = lay_out(model)
    load(model, start)
    model.train()
    device = next(model.parameters()).device
    parameters = list(model.parameters())
    optimizer = LocalSGD(parameters, settings) if settings.client_optimizer == "sgd" else _adam(model, settings)
    generator = torch_generator(seed, "batches", client, round_index)
    losses: list[Tensor] = []
    counts: list[int] = []
    with forked(seed, "local training", client, round_index), phase(LOCAL):
        for inputs, labels in _batches(data, settings.epochs, generator, released):
            inputs, labels = as_laid_out(inputs.to(device), layout), labels.to(device).long()
            # Not the optimiser's zero_grad: what it does for profilers costs a small model a tenth of its step.
            for parameter in parameters:
                parameter.grad = None
            with running_statistics(model, samples=len(labels)):
                logits, added = term.forward(model, inputs)
            loss = _cross_entropy(logits, labels)
            (loss if added is None else loss + added).backward()
            term.correct_gradients(model)
            if settings.clip_grad_norm is not None:
                clip_gradients(parameters, settings.clip_grad_norm)
            optimizer.step()
            losses.append(loss.detach())
            counts.append(1 if released else len(labels))
    if not counts:
        raise UserError(f"client {client} has no training sample; give it some or lower client_num_in_total")
    # Once for all batches: each operation on a single number costs a small model a twentieth of its step.
    total = 0.0
    # Not Python's sum, which rounds in another way since 3.12.
    for summed in (torch.stack(losses) * torch.tensor(counts, device=device)).tolist():
        total += summed
    return snapshot(model), total / sum(counts)


def local_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    """The clients' optimiser as an object of PyTorch's; the paper's is SGD with momentum 0.9."""
    if settings.client_optimizer == "adam":
        return _adam(model, settings)
    return torch.optim.SGD(
        model.parameters(),
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def _adam(model: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    return torch.optim.Adam(
        model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )


def gradient_at(
    model: nn.Module, weights: Weights, data: Iterable[Any], seed: int, client: int, round_index: int
) -> dict[str, Tensor]:
    """The gradient of the mean cross-entropy over all of a client's samples at `weights`, by parameter.

    In eval mode: a gradient at given weights should not depend on how samples fall into batches, nor on dropout.
    """
    layout = lay_out(model)
    load(model, weights)
    model.eval()
    model.zero_grad(set_to_none=True)
    device = next(model.parameters()).device
    generator = torch_generator(seed, "gradient", client, round_index)
    samples = 0
    with forked(seed, "gradient", client, round_index):
        for inputs, labels in _epoch(data, generator):
            inputs, labels = as_laid_out(inputs.to(device), layout), labels.to(device).long()
            (_cross_entropy(model(inputs), labels) * len(labels)).backward()
            samples += len(labels)
    gradients = {
        name: parameter.grad.detach().cpu().contiguous() / samples
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    model.zero_grad(set_to_none=True)
    return gradients


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over the samples, and over their positions where the model answers at each: [N, C, T], [N, T]."""
    if logits.dim() < 2 or (logits.shape[0], *logits.shape[2:]) != tuple(labels.shape):
        raise UserError(
            f"the model gives logits of the shape {tuple(logits.shape)} for labels of the shape {tuple(labels.shape)}; "
            "[N, C] goes with one label per sample, [N, C, T] with one at each of T positions"
        )
    # The loss in float32, whatever the model computes in.
    return nn.functional.cross_entropy(logits.float() if logits.dtype is torch.bfloat16 else logits, labels)


def _batches(data: Any, epochs: int, generator: torch.Generator, released: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Those of all epochs; and of passes after them as many as the authors' program takes beyond."""
    made = 0
    for _ in range(epochs):
        for batch in _epoch(data, generator):
            made += 1
            yield batch
    wanted = max(made, _LEAST_BATCHES) + 1 if released else made
    while made < wanted:
        beyond = list(islice(_epoch(data, generator), wanted - made))
        if not beyond:
            return
        made += len(beyond)
        yield from beyond


def _epoch(data: Any, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    # A user's own loader shuffles as it likes, from the global state that the caller has forked and seeded.
    return data.shuffled_batches(generator) if hasattr(data, "shuffled_batches") else iter(data)
