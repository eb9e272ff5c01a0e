"""What passes between a client's rule and the server's rule, and what the server carries from round to round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..models.weights import size_in_bytes

Weights = Mapping[str, Tensor]

#: What travels beside the weights, under names of the algorithm's own: tensors, or plain numbers.
Extra = Mapping[str, "Tensor | float"]

#: What the server keeps between rounds, under names of the algorithm's own: tensors, or what JSON can say.
Memory = Mapping[str, Any]


@dataclass(frozen=True)
class ClientTask:
    """What a client is given in a round.

    Attributes:
        client: k, its index.
        round: t.
        start: theta_t. Not to be written into: it is everybody's.
        data: its samples: a shard with `shuffled_batches(generator)`, or any re-iterable of (x, y) batches.
        samples: how many they are.
        extra: what `for_client` gave for this client; all of it tensors.
    """

    client: int
    round: int
    start: Weights
    data: Iterable[Any]
    samples: int
    extra: Weights = field(default_factory=dict)


@dataclass(frozen=True)
class ClientUpdate:
    """What a client sends back.

    Attributes:
        client: k, its index.
        samples: how many samples it trained on.
        weights: theta_{t,k}.
        loss: L_{t,k}, the mean cross-entropy over all samples of all local epochs as trained, or None where the
            client keeps it to itself.
        extra: what else the algorithm sends; numbers arrive as tensors.
    """

    client: int
    samples: int
    weights: Weights
    loss: float | None
    extra: Weights = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """What travels, without the envelope: weights, extra and the loss."""
        return size_in_bytes(self.weights) + size_in_bytes(self.extra) + (0 if self.loss is None else 8)


@dataclass(frozen=True)
class NoReply:
    """A chosen client from which nothing came, and why."""

    client: int
    reason: str


@dataclass(frozen=True)
class ServerState:
    """All that the server carries from round to round; saved whole, it makes a run resumable.

    Attributes:
        round: the round to be done next.
        weights: theta_t, what the next clients receive.
        answer: the model whose predictions are the server's answer.
        memory: what else the algorithm keeps, by names of its own.
    """

    round: int
    weights: Weights
    answer: Weights
    memory: Memory = field(default_factory=dict)


@dataclass(frozen=True)
class RoundReport:
    """What a server's rule has to tell of its round, beside the new state.

    Attributes:
        metrics: any numbers, by names of the algorithm's own: they stand in metrics.jsonl, in the progress line and
            as curves in the report.
        predictions: logits or probabilities for the server's samples, [M, C], by name. Where labels exist they are
            scored by the examiner, as `acc_<name>`; the algorithm never sees a label.
        votes: the class that each teacher names for each of the server's samples, [K, M], where there are teachers.
            The report tells how many of the last round's agree with the answer.
    """

    metrics: Mapping[str, float | None] = field(default_factory=dict)
    predictions: Mapping[str, Tensor] = field(default_factory=dict)
    votes: Tensor | None = None


def mean_loss(updates: Iterable[ClientUpdate]) -> float | None:
    """1/|S| sum_k L_{t,k} over the clients that report a loss; None where none does."""
    losses = [update.loss for update in updates if update.loss is not None]
    return sum(losses) / len(losses) if losses else None


def as_tensors(extra: Extra) -> dict[str, Tensor]:
    """What travels beside the weights, in the form in which it travels: numbers become tensors of one double.

    >>> as_tensors({"scale": 2})
    {'scale': tensor(2., dtype=torch.float64)}
    """
    tensors = {}
    for name, value in extra.items():
        if isinstance(value, Tensor):
            tensors[name] = value.detach().cpu()
        elif isinstance(value, int | float):
            tensors[name] = torch.tensor(float(value), dtype=torch.float64)
        else:
            raise UserError(
                f"what an algorithm sends beside the weights must be tensors and numbers, but {name!r} is a "
                f"{type(value).__name__}"
            )
    return tensors
