"""SHOT, once, on FedAvg's last model: a control that asks whether refining every round is needed.

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

from ..models.evaluation import evaluating
from ..models.positions import rows_of_logits
from ..models.weights import load, snapshot
from ..randomness import forked, torch_generator
from ..refinery.clusters import cosine_distances, prototypes
from ..refinery.distill import batches, training
from ..refinery.rectify import entropy
from ..settings.kinds import VALIDATED, NonNegative, Positive, Steps
from .base import Algorithm
from .bench import ServerBench
from .exchange import ClientUpdate, RoundReport, ServerState, Weights
from .registry import register_algorithm


@dataclass(frozen=True, config=VALIDATED)
class SHOTSettings:
    """SHOT's keys in `shot_args`."""

    #: Passes over the server's set, with new pseudo-labels before each. 0 means no effect: FedAvg again.
    shot_epochs: Steps = 15
    #: SGD's rate, with momentum 0.9.
    shot_lr: Positive = 0.01
    #: SGD's weight decay.
    shot_weight_decay: NonNegative = 1e-3
    #: beta, the weight of the pseudo-labels beside information maximisation.
    shot_pseudo_weight: NonNegative = 0.3
    #: Server samples per step. At least 2, since BatchNorm needs two.
    shot_batch_size: Annotated[int, Field(ge=2)] = 64


@register_algorithm
class SHOT(Algorithm):
    """FedAvg; after the last round the extractor of h(x) is adapted to the server's set, the head standing still.

    The adapted model answers; theta_t stays FedAvg's, so a run that is resumed with more rounds goes on as FedAvg. A
    last round in which nobody's update could be used leaves FedAvg's answer.
    """

    name: ClassVar[str] = "SHOT"
    Settings = SHOTSettings
    transductive: ClassVar[bool] = True
    own: SHOTSettings

    def finish_round(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, bench: ServerBench
    ) -> tuple[ServerState, RoundReport]:
        """FedAvg's; in the last round the adapted model is the answer."""
        after, report = super().finish_round(state, updates, aggregated, bench)
        if after.round < self.settings.train.comm_round or self.own.shot_epochs == 0:
            return after, report
        before = bench.logits(aggregated)
        with forked(self.seed, "shot dropout", state.round):
            adapted = self._adapted(aggregated, torch_generator(self.seed, "shot", state.round), bench)
        report = RoundReport(predictions={"aggregated": before, "shot": bench.logits(adapted)})
        return replace(after, answer=adapted), report

    def _adapted(self, weights: Weights, generator: torch.Generator, bench: ServerBench) -> Weights:
        model, inputs = bench.model, bench.inputs
        load(model, weights)
        extractor = extractor_parameters(model, bench)
        if not extractor:
            return weights
        optimizer = torch.optim.SGD(
            extractor, lr=self.own.shot_lr, momentum=0.9, weight_decay=self.own.shot_weight_decay
        )
        steps = steps_per_pass(len(inputs), self.own.shot_batch_size)
        for _ in range(self.own.shot_epochs):
            logits, features = bench.read(model, True)
            assert features is not None
            labels = pseudo_labels(logits.softmax(dim=1), features).reshape(len(inputs), -1)
            with training(model):
                for batch in batches(len(inputs), self.own.shot_batch_size, steps, generator):
                    part = batch.to(inputs.device)
                    model.zero_grad(set_to_none=True)
                    rows = rows_of_logits(model(inputs[part]), len(part))
                    shot_loss(rows, labels[part].flatten(), self.own.shot_pseudo_weight).backward()
                    optimizer.step()
        model.zero_grad(set_to_none=True)
        return snapshot(model)


def steps_per_pass(samples: int, batch_size: int) -> int:
    """The batches of one pass; a last batch of one joins the one before it.

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
    """The class of the nearest centroid by cosine, [M]: centroids weighed by q first, then by the labels so found."""
    labels = cosine_distances(features, prototypes(probabilities, features)).argmin(dim=1)
    hard = nn.functional.one_hot(labels, probabilities.shape[1]).to(features)
    distances = cosine_distances(features, prototypes(hard, features))
    # A class that lost all its samples has no centroid, and gets none back.
    return distances.masked_fill(hard.sum(dim=0) == 0, torch.inf).argmin(dim=1)


def extractor_parameters(model: nn.Module, bench: ServerBench) -> list[nn.Parameter]:
    """The parameters on which h(x) depends; the others are the head's."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with evaluating(model):
        features = bench.tap.read(model, bench.inputs[:2])[1]
    if not features.requires_grad:
        return []
    gradients = torch.autograd.grad(features.sum(), parameters, allow_unused=True)
    return [parameter for parameter, gradient in zip(parameters, gradients, strict=True) if gradient is not None]
