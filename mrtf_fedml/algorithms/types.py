"""The values that clients and server exchange, and the state that the server keeps between rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..models.state_dict import size_in_bytes

Weights = Mapping[str, Tensor]

#: What an algorithm sends with the weights, by name: tensors or numbers.
Payload = Mapping[str, "Tensor | float"]

#: What an algorithm keeps on the server between rounds, by name: tensors, or values that JSON can represent.
Memory = Mapping[str, Any]


@dataclass(frozen=True)
class ClientTask:
    """What a client receives in a round.

    Attributes:
        client: k, its index.
        round: t.
        weights: theta_t. Read only: all clients share them.
        data: its samples: a shard with `shuffled_batches(generator)`, or any re-iterable of (x, y) batches.
        samples: number of samples.
        payload: what `client_payload` returned for this client, as tensors.
    """

    client: int
    round: int
    weights: Weights
    data: Iterable[Any]
    samples: int
    payload: Weights = field(default_factory=dict)


@dataclass(frozen=True)
class ClientUpdate:
    """What a client sends back.

    Attributes:
        client: k, its index.
        samples: number of samples that it trained on.
        weights: theta_{t,k}.
        loss: L_{t,k}, the mean cross-entropy over all samples of all local epochs as trained, or None if
            the client does not report it.
        payload: what else the algorithm sends, by name; numbers arrive as tensors.
        is_outlier: whether the server has shortened it, since it was much longer than the others'. It is never sent.
        is_opposed: whether it points against the others' of its round. It is never sent.
    """

    client: int
    samples: int
    weights: Weights
    loss: float | None
    payload: Weights = field(default_factory=dict)
    is_outlier: bool = False
    is_opposed: bool = False

    @property
    def bytes(self) -> int:
        """Bytes that are sent, without the message's overhead: weights, payload and loss."""
        return size_in_bytes(self.weights) + size_in_bytes(self.payload) + (0 if self.loss is None else 8)


@dataclass(frozen=True)
class ClientFailure:
    """A selected client without a reply, and the reason."""

    client: int
    reason: str


@dataclass(frozen=True)
class ServerState:
    """The server's state between rounds; a checkpoint stores all of it.

    Attributes:
        round: index of the next round.
        weights: theta_t, what the next clients receive.
        prediction_weights: the model whose predictions are the run's result.
        memory: what else the algorithm keeps, by name.
    """

    round: int
    weights: Weights
    prediction_weights: Weights
    memory: Memory = field(default_factory=dict)


@dataclass(frozen=True)
class RoundReport:
    """What an algorithm's server update reports about its round, besides the new state.

    Attributes:
        metrics: numbers by names of the algorithm's own. They are written to metrics.jsonl, and shown in the progress
            line and as curves in the report.
        predictions: logits or probabilities for the server's samples, [M, C], by name. If labels exist, the evaluator
            scores them as `acc_<name>`; the algorithm never sees a label.
        teacher_labels: the class that each teacher predicts for each of the server's samples, [K, M]; None without
            teachers.
        stop_reason: why further rounds would change nothing, so that the run ends; None while they would.
    """

    metrics: Mapping[str, float | None] = field(default_factory=dict)
    predictions: Mapping[str, Tensor] = field(default_factory=dict)
    teacher_labels: Tensor | None = None
    stop_reason: str | None = None


@dataclass(frozen=True)
class Metric:
    """One number that an algorithm reports per round (`RoundReport.metrics`), and how it is shown.

    Attributes:
        name: the key in metrics.jsonl.
        label: what the report and the progress line call it.
        unit: its unit; empty for a pure number.
        in_progress: whether the progress line shows it.
    """

    name: str
    label: str
    unit: str = ""
    in_progress: bool = False


def mean_loss(updates: Iterable[ClientUpdate]) -> float | None:
    """1/|S| sum_k L_{t,k} over the clients that report a loss; None where none does."""
    losses = [update.loss for update in updates if update.loss is not None]
    return sum(losses) / len(losses) if losses else None


def as_tensors(payload: Payload) -> dict[str, Tensor]:
    """The payload as it is sent: numbers become tensors of one double.

    >>> as_tensors({"scale": 2})
    {'scale': tensor(2., dtype=torch.float64)}
    """
    tensors = {}
    for name, value in payload.items():
        if isinstance(value, Tensor):
            tensors[name] = value.detach().cpu()
        elif isinstance(value, int | float):
            tensors[name] = torch.tensor(float(value), dtype=torch.float64)
        else:
            raise UserError(
                f"the payload of an algorithm must be tensors and numbers, but {name!r} is a {type(value).__name__}"
            )
    return tensors
