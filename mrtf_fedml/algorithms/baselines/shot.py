"""SHOT, applied once to FedAvg's last model: a control for refining in every round.

Liang, Hu, Feng: "Do We Really Need to Access the Source Data? Source Hypothesis Transfer for Unsupervised Domain
Adaptation", ICML 2020. The source model is FedAvg's last one; the target domain is the server's set. SHOT's smoothed
labels, weight normalisation and bottleneck belong to the training of a source model; clients here train as FedAvg's do.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from ...config.types import VALIDATED, NonNegativeFloat, NonNegativeInt, PositiveFloat
from ...models.modes import eval_mode
from ...models.outputs import logit_rows
from ...models.state_dict import load_weights, snapshot
from ...refinery.clustering import cosine_distances, prototypes
from ...refinery.distillation import batches, train_mode
from ...refinery.ensemble import entropy
from ...rng import fork_rng, torch_generator
from ..base import Algorithm
from ..registry import register_algorithm
from ..server_context import ServerContext
from ..types import ClientUpdate, RoundReport, ServerState, Weights


@dataclass(frozen=True, config=VALIDATED)
class SHOTSettings:
    """SHOT's keys in `shot_args`."""

    #: Passes over the server's set, each with new pseudo-labels. 0 means no effect: FedAvg.
    shot_epochs: NonNegativeInt = 15
    #: SGD's learning rate; the momentum is 0.9.
    shot_lr: PositiveFloat = 0.01
    #: SGD's weight decay.
    shot_weight_decay: NonNegativeFloat = 1e-3
    #: beta, the weight of the pseudo-labels relative to information maximisation.
    shot_pseudo_weight: NonNegativeFloat = 0.3
    #: Batch size. At least 2, since BatchNorm needs two samples.
    shot_batch_size: Annotated[int, Field(ge=2)] = 64


@register_algorithm
class SHOT(Algorithm):
    """FedAvg; after the last round the layers below h(x) are adapted to the server's set, and the head is fixed.

    The adapted model predicts; theta_t stays FedAvg's, so that a run that is resumed with more rounds continues as
    FedAvg. If the last round has no valid update, FedAvg's model predicts.
    """

    name: ClassVar[str] = "SHOT"
    Settings = SHOTSettings
    transductive: ClassVar[bool] = True
    hparams: SHOTSettings

    def server_update(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, server: ServerContext
    ) -> tuple[ServerState, RoundReport]:
        """FedAvg's; in the last round the adapted model becomes the predicting one."""
        after, report = super().server_update(state, updates, aggregated, server)
        if after.round < self.settings.train.comm_round or self.hparams.shot_epochs == 0:
            return after, report
        before = server.logits(aggregated)
        with fork_rng(self.seed, "shot dropout", state.round):
            adapted = self._adapt(aggregated, torch_generator(self.seed, "shot", state.round), server)
        report = RoundReport(predictions={"aggregated": before, "shot": server.logits(adapted)})
        return replace(after, prediction_weights=adapted), report

    def _adapt(self, weights: Weights, generator: torch.Generator, server: ServerContext) -> Weights:
        model, inputs = server.model, server.inputs
        load_weights(model, weights)
        extractor = extractor_parameters(model, server)
        if not extractor:
            return weights
        optimizer = torch.optim.SGD(
            extractor, lr=self.hparams.shot_lr, momentum=0.9, weight_decay=self.hparams.shot_weight_decay
        )
        steps = steps_per_pass(len(inputs), self.hparams.shot_batch_size)
        for _ in range(self.hparams.shot_epochs):
            logits, features = server.predict(model, features=True)
            assert features is not None
            labels = pseudo_labels(logits.softmax(dim=1), features).reshape(len(inputs), -1)
            with train_mode(model):
                for batch in batches(len(inputs), self.hparams.shot_batch_size, steps, generator):
                    part = batch.to(inputs.device)
                    model.zero_grad(set_to_none=True)
                    rows = logit_rows(model(inputs[part]), len(part))
                    shot_loss(rows, labels[part].flatten(), self.hparams.shot_pseudo_weight).backward()
                    optimizer.step()
        model.zero_grad(set_to_none=True)
        return snapshot(model)


def steps_per_pass(samples: int, batch_size: int) -> int:
    """Number of batches of one pass; a last batch of one sample joins the one before it.

    >>> steps_per_pass(5, 2), steps_per_pass(6, 4), steps_per_pass(1, 2)
    (2, 2, 1)
    """
    return max(1, math.ceil(samples / batch_size) - (samples % batch_size == 1))


def shot_loss(logits: Tensor, labels: Tensor, pseudo_weight: float) -> Tensor:
    """E[H(q(x))] - H(E[q(x)]) + beta * CE(labels, q): sure on each sample, varied over all, near the pseudo-labels.

    >>> sure_and_varied = torch.tensor([[50.0, 0.0], [0.0, 50.0]])
    >>> shot_loss(sure_and_varied, torch.tensor([0, 1]), pseudo_weight=1.0)  # -log 2
    tensor(-0.6931)
    """
    probabilities = logits.softmax(dim=1)
    information = entropy(probabilities).mean() - entropy(probabilities.mean(dim=0))
    return information + pseudo_weight * nn.functional.cross_entropy(logits, labels)


def pseudo_labels(probabilities: Tensor, features: Tensor) -> Tensor:
    """The class of the nearest centroid by cosine, [M]: centroids weighted by q, then by the resulting labels."""
    labels = cosine_distances(features, prototypes(probabilities, features)).argmin(dim=1)
    hard = nn.functional.one_hot(labels, probabilities.shape[1]).to(features)
    distances = cosine_distances(features, prototypes(hard, features))
    # A class without samples has no centroid and gets no sample.
    return distances.masked_fill(hard.sum(dim=0) == 0, torch.inf).argmin(dim=1)


def extractor_parameters(model: nn.Module, server: ServerContext) -> list[nn.Parameter]:
    """The parameters on which h(x) depends; the others belong to the head."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with eval_mode(model):
        features = server.extractor.extract(model, server.inputs[:2])[1]
    if not features.requires_grad:
        return []
    gradients = torch.autograd.grad(features.sum(), parameters, allow_unused=True)
    return [parameter for parameter, gradient in zip(parameters, gradients, strict=True) if gradient is not None]
