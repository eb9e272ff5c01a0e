"""What every client does: some epochs of SGD on its own samples."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from ..config import TrainSettings
from ..errors import UserError, suggest_name
from ..models.memory_layout import apply_layout, to_layout
from ..models.modes import use_running_statistics
from ..models.state_dict import load_weights, snapshot
from ..phases import LOCAL, phase
from ..refinery.distillation import clip_gradients
from ..rng import fork_rng, torch_generator
from .types import Weights


class LocalTerm:
    """What an algorithm adds to a client's SGD; this one adds nothing.

    A subclass overrides `forward`, `correct_gradients` or both. One object serves one client in one round, so it may
    keep values between batches. Other methods of a subclass start with an underscore: a misspelt name would never be
    called.
    """

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        hooks = ["forward", "correct_gradients"]
        for name, value in vars(cls).items():
            if callable(value) and not name.startswith("_") and name not in hooks:
                raise UserError(
                    f"{cls.__name__}.{name} is no method of LocalTerm, so that it would never be called; "
                    f"{suggest_name(name, hooks)} (a helper's name starts with an underscore)"
                )

    def forward(self, model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """The logits, and what is added to the batch's loss, if anything."""
        return model(inputs), None

    def correct_gradients(self, model: nn.Module) -> None:
        """Change the batch's gradients in place, before they are clipped and a step is made."""


def one_epoch(data: Any, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of one pass over a client's samples."""
    # A user's own loader shuffles as it likes, from the global state that the caller has forked and seeded.
    return data.shuffled_batches(generator) if hasattr(data, "shuffled_batches") else iter(data)


def epoch_batches(data: Any, epochs: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of all epochs."""
    for _ in range(epochs):
        yield from one_epoch(data, generator)


#: The batches on which a client trains, from its data, the number of epochs and a generator.
Batches = Callable[[Any, int, torch.Generator], Iterator[tuple[Tensor, Tensor]]]


class LocalTraining(Protocol):
    """A function that trains a client's model: `train_locally`, or one with its first eight arguments."""

    def __call__(
        self,
        model: nn.Module,
        start: Weights,
        data: Iterable[Any],
        settings: TrainSettings,
        seed: int,
        client: int,
        round_index: int,
        term: LocalTerm | None = None,
    ) -> tuple[OrderedDict[str, Tensor], float]:
        """The trained weights and the loss."""


def train_locally(
    model: nn.Module,
    start: Weights,
    data: Iterable[Any],
    settings: TrainSettings,
    seed: int,
    client: int,
    round_index: int,
    term: LocalTerm | None = None,
    batches: Batches = epoch_batches,
    loss_weight: Callable[[Tensor], int] = len,
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
        batches: the batches of all epochs.
        loss_weight: of a batch in the mean loss, by its labels; by default its number of samples.

    Returns:
        the trained weights as clones, and the mean cross-entropy over all samples of all epochs as trained, to which
        the term adds nothing.
    """
    term = term or LocalTerm()
    layout = apply_layout(model)
    load_weights(model, start)
    model.train()
    device = next(model.parameters()).device
    parameters = list(model.parameters())
    optimizer = LocalSGD(parameters, settings) if settings.client_optimizer == "sgd" else _adam(model, settings)
    generator = torch_generator(seed, "batches", client, round_index)
    losses: list[Tensor] = []
    counts: list[int] = []
    with fork_rng(seed, "local training", client, round_index), phase(LOCAL):
        for inputs, labels in batches(data, settings.epochs, generator):
            inputs, labels = to_layout(inputs.to(device), layout), labels.to(device).long()
            # Not the optimiser's zero_grad: what it does for profilers costs a small model a tenth of its step.
            for parameter in parameters:
                parameter.grad = None
            with use_running_statistics(model, samples=len(labels)):
                logits, added = term.forward(model, inputs)
            loss = _cross_entropy(logits, labels)
            (loss if added is None else loss + added).backward()
            term.correct_gradients(model)
            if settings.clip_grad_norm is not None:
                clip_gradients(parameters, settings.clip_grad_norm)
            optimizer.step()
            losses.append(loss.detach())
            counts.append(loss_weight(labels))
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
    layout = apply_layout(model)
    load_weights(model, weights)
    model.eval()
    model.zero_grad(set_to_none=True)
    device = next(model.parameters()).device
    generator = torch_generator(seed, "gradient", client, round_index)
    samples = 0
    with fork_rng(seed, "gradient", client, round_index):
        for inputs, labels in one_epoch(data, generator):
            inputs, labels = to_layout(inputs.to(device), layout), labels.to(device).long()
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


class LocalSGD:
    """The steps of `torch.optim.SGD(fused=True)`, to the bit: the same kernel, called by its functional form.

    An Optimizer opens a block for profilers in each step and looks up its state by parameter: a fifth of the training
    of a logistic regression.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], settings: TrainSettings) -> None:
        self._parameters = parameters
        self._settings = settings
        self._momenta: list[Tensor | None] = [None] * len(parameters)

    def step(self) -> None:
        """Make one step; a parameter without a gradient stays as it is."""
        places = [place for place, parameter in enumerate(self._parameters) if parameter.grad is not None]
        parameters: list[Tensor] = [self._parameters[place] for place in places]
        gradients: list[Tensor] = [self._parameters[place].grad for place in places]  # type: ignore[misc]
        momenta = [self._momenta[place] for place in places] if self._settings.momentum else []
        with torch.no_grad():
            sgd(
                parameters,
                gradients,
                momenta,
                has_sparse_grad=any(gradient.is_sparse for gradient in gradients),
                fused=True,
                weight_decay=self._settings.weight_decay,
                momentum=self._settings.momentum,
                lr=self._settings.learning_rate,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
        for place, momentum in zip(places, momenta, strict=False):
            self._momenta[place] = momentum
