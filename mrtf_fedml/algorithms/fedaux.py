"""Certainty-weighted distillation as in FedAUX, without its pretraining.

Sattler, Korjakow, Rischke, Samek: "FedAUX: Leveraging Unlabeled Auxiliary Data in Federated Learning", TNNLS 2021.
There, auxiliary data pretrain an extractor; each client fits a logistic regression between its private samples and a
part of the auxiliary ones, on the extractor's features, adds noise to it once, and its probability of "private" is the
client's score on each sample; the student follows softmax(sum_k s_k(x) f_k(x) / sum_k s_k(x)).

What differs here: there is no pretraining, so the features are those of theta_t and the regression is fitted anew in
each round. A client of ours never sees the server's inputs, so its negatives are drawn from a Gaussian with the mean
and the deviation that the features of the server's set have: these 2 D numbers are what clients learn of it. Features
are scaled to unit length, row by row. In round 0 no client has been told anything: all scores are equal.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from ..errors import UserError
from ..randomness import torch_generator
from ..refinery.clusters import unit_rows
from ..refinery.teachers import average_logits
from ..settings import RunSettings
from ..settings.kinds import VALIDATED, Positive
from .bench import ServerBench
from .client_features import doubles_of, features_of_client, refuse_noise
from .distilled import Distilled, DistilledSettings
from .exchange import ClientTask, ClientUpdate, Extra, RoundReport, ServerState, Weights
from .registry import register_algorithm

_MEAN, _DEVIATION = "fedaux/mean", "fedaux/deviation"
_CERTAINTY = "certainty"
#: No teacher is silenced wholly: sums of scores stay above zero.
_LEAST_SCORE = 1e-8


@dataclass(frozen=True, config=VALIDATED)
class FedAUXSettings(DistilledSettings):
    """FedAUX's keys in `mrtf_args`."""

    #: lambda, the regression's L2 penalty on the mean loss.
    fedaux_penalty: Positive = 0.01
    #: epsilon of the noise on the regression, per client and round. Not given: none. It is not in the run's account.
    fedaux_epsilon: Positive | None = None
    #: delta of that noise.
    fedaux_delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5


@register_algorithm
class FedAUX(Distilled):
    """FedDF whose teachers are weighed on each sample by how much it looks like what they were trained on.

    Equal scores, as in round 0, give FedDF's targets.
    """

    name: ClassVar[str] = "FedAUX"
    Settings = FedAUXSettings
    own: FedAUXSettings

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        refuse_noise(settings, self.name, "what sets their samples apart")

    def for_client(self, state: ServerState, client: int) -> Extra:
        """Mean and deviation of the features of the server's set; nothing in round 0."""
        return {name: state.memory[name] for name in (_MEAN, _DEVIATION) if name in state.memory}

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        """Local training, and the regression that tells the client's samples from the server's."""
        known = doubles_of(task.extra, (_MEAN, _DEVIATION))
        if known is None:
            return super().train_client(model, task)
        features, _ = features_of_client(model, task, self.settings.model.feature_layer, self.seed)
        if any(part.shape != features.shape[1:] for part in known):
            raise UserError(
                "the server's features are of another form than this client's; use the same model everywhere"
            )
        generator = torch_generator(self.seed, "fedaux", task.client, task.round)
        drawn = torch.randn(features.shape, generator=generator, dtype=torch.float64)
        certainty = fitted_certainty(features, known[0] + known[1] * drawn, self.own.fedaux_penalty)
        if self.own.fedaux_epsilon is not None:
            # |x| <= 1, so one sample moves the minimiser by 2 / (n lambda) at most.
            sensitivity = 2 / (2 * len(features) * self.own.fedaux_penalty)
            sigma = math.sqrt(2 * math.log(1.25 / self.own.fedaux_delta)) * sensitivity / self.own.fedaux_epsilon
            certainty += sigma * torch.randn(certainty.shape, generator=generator, dtype=torch.float64)
        return replace(super().train_client(model, task), extra={_CERTAINTY: certainty.float()})

    def unusable(self, state: ServerState, update: ClientUpdate) -> str | None:
        """Its regression must be on the features that it was told of."""
        if _CERTAINTY not in update.extra:
            return None
        features = state.memory.get(_MEAN)
        fits = features is not None and update.extra[_CERTAINTY].shape == (len(features) + 1,)
        return None if fits else "its certainty is not of the form of the server's features"

    def targets(
        self, state: ServerState, updates: list[ClientUpdate], logits: Tensor, aggregated: Weights, bench: ServerBench
    ) -> Tensor:
        """softmax(sum_k s_k(x) f_k(x) / sum_k s_k(x))."""
        certainties = [doubles_of(update.extra, (_CERTAINTY,)) for update in updates]
        scores = torch.full(logits.shape[:2], 0.5, dtype=torch.float64, device=logits.device)
        if any(certainties):
            features = bench.features(state.weights, torch.arange(len(bench.inputs))).double()
            for k, certainty in enumerate(certainties):
                if certainty is not None:
                    scores[k] = certainty_scores(features, certainty[0].to(features.device))
        return average_logits(logits.double(), scores + _LEAST_SCORE).to(logits.dtype)

    def finish_round(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, bench: ServerBench
    ) -> tuple[ServerState, RoundReport]:
        """Distillation, and what the next clients are told: the server's features in the model they start from."""
        after, report = super().finish_round(state, updates, aggregated, bench)
        if self.own.refine_steps == 0:
            return after, report
        features = bench.features(after.weights, torch.arange(len(bench.inputs))).double()
        facts = {_MEAN: features.mean(dim=0), _DEVIATION: features.std(dim=0, correction=0)}
        memory = {name: value.float().cpu() for name, value in facts.items()}
        return replace(after, memory={**after.memory, **memory}), report


def certainty_scores(features: Tensor, certainty: Tensor) -> Tensor:
    """s(x) = sigmoid(b·x'), x' = (h/|h|, 1) / sqrt 2: the probability that x is the client's own, [M].

    >>> certainty_scores(torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([2.0, -2.0, 0.0]) * 2**0.5)
    tensor([0.8808, 0.1192])
    """
    return torch.sigmoid(_with_constant(features) @ certainty)


def fitted_certainty(own: Tensor, others: Tensor, penalty: float) -> Tensor:
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
    """X' of each row; its length is at most 1."""
    ones = torch.ones(len(features), 1, dtype=features.dtype, device=features.device)
    return torch.cat([unit_rows(features), ones], dim=1) / math.sqrt(2)
