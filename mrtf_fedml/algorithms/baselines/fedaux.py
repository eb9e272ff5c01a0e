"""Certainty-weighted distillation as in FedAUX, without its pretraining.

Sattler, Korjakow, Rischke, Samek: "FedAUX: Leveraging Unlabeled Auxiliary Data in Federated Learning", TNNLS 2021.
There, auxiliary data pretrain an extractor; each client fits a logistic regression between its private samples and a
part of the auxiliary ones, on the extractor's features, adds noise to it once, and its probability of "private" is the
client's score on each sample; the student follows softmax(sum_k s_k(x) f_k(x) / sum_k s_k(x)).

Differences: there is no pretraining, so the features are those of theta_t and the regression is fitted in each round.
Our clients do not receive the server's inputs, so the negatives are drawn from a Gaussian with the mean and the
standard deviation of the features of the server's set: these 2 D numbers are all that clients receive. Features
are scaled to unit length, row by row. In round 0 clients have not received them yet: all scores are equal.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from ...config import RunSettings
from ...config.types import VALIDATED, PositiveFloat
from ...errors import UserError
from ...refinery.clustering import unit_rows
from ...refinery.ensemble import average_logits
from ...rng import torch_generator
from ..registry import register_algorithm
from ..server_context import ServerContext
from ..types import ClientTask, ClientUpdate, Payload, RoundReport, ServerState, Weights
from .base import (
    DistillationBaseline,
    DistillationBaselineSettings,
    client_features,
    payload_doubles,
    reject_privacy,
)

_MEAN, _DEVIATION = "fedaux/mean", "fedaux/deviation"
_CERTAINTY = "certainty"
#: Added to all scores, so that their sums stay above zero.
_MIN_SCORE = 1e-8


@dataclass(frozen=True, config=VALIDATED)
class FedAUXSettings(DistillationBaselineSettings):
    """FedAUX's keys in `mrtf_args`."""

    #: lambda, the regression's L2 penalty on the mean loss.
    fedaux_penalty: PositiveFloat = 0.01
    #: epsilon of the noise on the regression, per client and round. Default: no noise. The run's privacy budget does
    #: not include it.
    fedaux_epsilon: PositiveFloat | None = None
    #: delta of that noise.
    fedaux_delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5


@register_algorithm
class FedAUX(DistillationBaseline):
    """FedDF whose teachers are weighted on each sample by its similarity to their training samples.

    With equal scores, as in round 0, the targets are FedDF's.
    """

    name: ClassVar[str] = "FedAUX"
    Settings = FedAUXSettings
    hparams: FedAUXSettings

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        reject_privacy(settings, self.name, "a regression on their features")

    def client_payload(self, state: ServerState, client: int) -> Payload:
        """Mean and deviation of the features of the server's set; nothing in round 0."""
        return {name: state.memory[name] for name in (_MEAN, _DEVIATION) if name in state.memory}

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        """Local training, and the regression that separates the client's samples from the server's."""
        known = payload_doubles(task.payload, (_MEAN, _DEVIATION))
        if known is None:
            return super().train_client(model, task)
        features, _ = client_features(model, task, self.settings.model.feature_layer, self.seed)
        if any(part.shape != features.shape[1:] for part in known):
            raise UserError(
                "the server's features have another shape than this client's; use the same model everywhere"
            )
        generator = torch_generator(self.seed, "fedaux", task.client, task.round)
        drawn = torch.randn(features.shape, generator=generator, dtype=torch.float64)
        certainty = fit_certainty(features, known[0] + known[1] * drawn, self.hparams.fedaux_penalty)
        if self.hparams.fedaux_epsilon is not None:
            # |x| <= 1, so that one sample changes the minimiser by at most 2 / (n lambda).
            sensitivity = 2 / (2 * len(features) * self.hparams.fedaux_penalty)
            sigma = (
                math.sqrt(2 * math.log(1.25 / self.hparams.fedaux_delta)) * sensitivity / self.hparams.fedaux_epsilon
            )
            certainty += sigma * torch.randn(certainty.shape, generator=generator, dtype=torch.float64)
        return replace(super().train_client(model, task), payload={_CERTAINTY: certainty.float()})

    def validate_update(self, state: ServerState, update: ClientUpdate) -> str | None:
        """Reject a regression of another width than the server's features."""
        if _CERTAINTY not in update.payload:
            return None
        features = state.memory.get(_MEAN)
        fits = features is not None and update.payload[_CERTAINTY].shape == (len(features) + 1,)
        return None if fits else "its certainty has another shape than the server's features"

    def targets(
        self,
        state: ServerState,
        updates: list[ClientUpdate],
        logits: Tensor,
        aggregated: Weights,
        server: ServerContext,
    ) -> Tensor:
        """softmax(sum_k s_k(x) f_k(x) / sum_k s_k(x))."""
        certainties = [payload_doubles(update.payload, (_CERTAINTY,)) for update in updates]
        scores = torch.full(logits.shape[:2], 0.5, dtype=torch.float64, device=logits.device)
        if any(certainties):
            features = server.features(state.weights, torch.arange(len(server.inputs))).double()
            for k, certainty in enumerate(certainties):
                if certainty is not None:
                    scores[k] = certainty_scores(features, certainty[0].to(features.device))
        return average_logits(logits.double(), scores + _MIN_SCORE).to(logits.dtype)

    def server_update(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, server: ServerContext
    ) -> tuple[ServerState, RoundReport]:
        """Distillation, and the mean and deviation of the server's features for the next clients."""
        after, report = super().server_update(state, updates, aggregated, server)
        if self.hparams.refine_steps == 0:
            return after, report
        features = server.features(after.weights, torch.arange(len(server.inputs))).double()
        statistics = {_MEAN: features.mean(dim=0), _DEVIATION: features.std(dim=0, correction=0)}
        memory = {name: value.float().cpu() for name, value in statistics.items()}
        return replace(after, memory={**after.memory, **memory}), report


def certainty_scores(features: Tensor, certainty: Tensor) -> Tensor:
    """s(x) = sigmoid(b·x'), x' = (h/|h|, 1) / sqrt 2: the probability that x is the client's own, [M].

    >>> certainty_scores(torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([2.0, -2.0, 0.0]) * 2**0.5)
    tensor([0.8808, 0.1192])
    """
    return torch.sigmoid(_with_constant(features) @ certainty)


def fit_certainty(own: Tensor, others: Tensor, penalty: float) -> Tensor:
    """B = argmin mean log(1 + exp(-y b·x')) + penalty / 2 |b|^2, y = 1 for `own` and -1 for `others`, [D + 1]."""
    rows = torch.cat([_with_constant(own), -_with_constant(others)])
    certainty = torch.zeros(rows.shape[1], dtype=rows.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([certainty], max_iter=100, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.softplus(-(rows @ certainty)).mean() + penalty / 2 * certainty.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return certainty.detach()


def _with_constant(features: Tensor) -> Tensor:
    """The vectors x' of all rows; their length is at most 1."""
    ones = torch.ones(len(features), 1, dtype=features.dtype, device=features.device)
    return torch.cat([unit_rows(features), ones], dim=1) / math.sqrt(2)
