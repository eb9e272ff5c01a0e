"""What passes between a client rule and a server rule, and what the server carries from round to round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..models import FeatureTap, predict_logits, predict_logits_and_features
from ..refinery.distill import distill
from ..settings import MrTFSettings

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class ClientUpdate:
    """What a client sends back.

    Attributes:
        client: its index.
        samples: how many samples it trained on.
        weights: theta_{t,k}.
        loss: L_{t,k}, the mean cross-entropy over all samples of all local epochs as trained, or None where the
            client keeps it to itself.
        variate: Scaffold's new c_k, a tensor a parameter; None in every other algorithm.
    """

    client: int
    samples: int
    weights: Weights
    loss: float | None
    variate: Weights | None = None


@dataclass(frozen=True)
class ServerState:
    """All that the server carries from round to round; saved whole, it makes a run resumable.

    Attributes:
        round: the round to be done next.
        weights: theta_t, what the next clients receive.
        answer: the model whose predictions are the server's answer.
        targets: the last round's distillation targets, [M, C], where the algorithm has any.
        memory: what else the algorithm keeps, by names of its own: FedOpt's moments, Scaffold's variates.
    """

    round: int
    weights: Weights
    answer: Weights
    targets: Tensor | None = None
    memory: Weights = field(default_factory=dict)


@dataclass(frozen=True)
class ServerBench:
    """What the server has to work with: its unlabelled inputs, and one model into which weights are swapped.

    Attributes:
        model: reusable; whoever swaps weights in leaves them there.
        inputs: x of the server, [M, ...], on the model's device.
        tap: reads h(x) from the model.
        classes: C.
        positions: T, where the model answers at each of T positions of a sample; every position is then a row, and
            M counts rows.
    """

    model: nn.Module
    inputs: Tensor
    tap: FeatureTap
    classes: int
    positions: int | None = None

    def read(self, model: nn.Module, features: bool = False) -> tuple[Tensor, Tensor | None]:
        """One pass over the server's inputs: the logits [M, C] and, where asked for, h(x) [M, D]."""
        if features:
            return predict_logits_and_features(model, self.inputs, self.tap)
        return predict_logits(model, self.inputs), None

    def known_logits(self, updates: list[ClientUpdate]) -> Mapping[int, Tensor]:
        """Logits [M, C] that others have computed, by the update's place; a server alone has none."""
        return {}

    def distil(
        self, student: nn.Module, inputs: Tensor, targets: Tensor, settings: MrTFSettings, generator: torch.Generator
    ) -> float:
        """Let the student follow the targets; the mean loss over the steps."""
        return distill(student, inputs, targets, settings, generator)

    def logits(self, weights: Weights) -> Tensor:
        """The logits [M, C] that these weights give."""
        self.model.load_state_dict(weights)
        return self.read(self.model)[0]


@dataclass(frozen=True)
class RoundReport:
    """What a server rule has to tell of its round, beside the new state.

    Attributes:
        local_loss: mean over the clients that report one.
        local_weight: u_t, or None where the algorithm has none.
        aggregated: logits of theta_{t+1} on the server's set, [M, C], where they were computed.
        ensemble: the teachers' ensemble before clustering, [M, C], where there is one.
        targets: the distillation targets, [M, C], where there are any.
    """

    local_loss: float | None = None
    local_weight: float | None = None
    aggregated: Tensor | None = None
    ensemble: Tensor | None = None
    targets: Tensor | None = None


def mean_loss(updates: list[ClientUpdate]) -> float | None:
    """1/|S| sum_k L_{t,k} over the clients that report a loss; None where none does."""
    losses = [update.loss for update in updates if update.loss is not None]
    return sum(losses) / len(losses) if losses else None
