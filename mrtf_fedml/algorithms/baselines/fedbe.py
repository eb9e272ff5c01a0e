"""FedBE: the ensemble of the clients, their average and sampled global models is distilled into the average.

Chen, Chao: "FedBE: Making Bayesian Model Ensemble Applicable to Federated Learning", ICLR 2021. With the server's own
inputs in place of its unlabelled data, and Adam in place of SGD for the student, as in our other distilling algorithms.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from ...config.types import VALIDATED, NonNegativeInt, PositiveFloat, PositiveInt
from ...models.state_dict import average, load_weights, snapshot
from ...refinery.distillation import DistillationSteps
from ...rng import numpy_generator, torch_generator
from ..registry import register_algorithm
from ..server_context import ServerContext
from ..types import ClientUpdate, ServerState, Weights
from .base import DistillationBaseline, DistillationBaselineSettings


@dataclass(frozen=True, config=VALIDATED)
class FedBESettings(DistillationBaselineSettings):
    """FedBE's keys in `mrtf_args`."""

    #: Distribution of the sampled global models: a Gaussian around the average, averages of the clients with
    #: Dirichlet-distributed shares, or half of each.
    fedbe_distribution: Literal["gaussian", "dirichlet", "both"] = "gaussian"
    #: Sampled global models per round. 0: only the clients and the average teach.
    fedbe_models: NonNegativeInt = 10
    #: Concentration of the Dirichlet distribution. Small values select single clients, very large ones the average.
    fedbe_alpha: PositiveFloat = 1.0
    #: Number of cycles of the student's steps; in each the learning rate falls to zero. The weights at the ends of the
    #: later half of the cycles are averaged (SWA). 1: plain steps at one rate.
    fedbe_swa_cycles: PositiveInt = 4


@register_algorithm
class FedBE(DistillationBaseline):
    """The targets are the mean probabilities of the K clients, the average and the sampled models.

    With a_k the clients' shares in the average and mu = sum_k a_k theta_k:

    - Gaussian: theta ~ N(mu, diag(sum_k a_k (theta_k - mu)^2)), for parameters only; BatchNorm's statistics are mu's.
    - Dirichlet: theta = sum_k g_k a_k theta_k / sum_k g_k a_k, g ~ Dir(alpha, ..., alpha).
    """

    name: ClassVar[str] = "FedBE"
    Settings = FedBESettings
    hparams: FedBESettings

    def targets(
        self,
        state: ServerState,
        updates: list[ClientUpdate],
        logits: Tensor,
        aggregated: Weights,
        server: ServerContext,
    ) -> Tensor:
        """The Bayesian ensemble."""
        total = logits.double().softmax(dim=2).sum(dim=0) + server.logits(aggregated).double().softmax(dim=1)
        for weights in self.sample_models(state.round, updates, aggregated, server):
            total += server.logits(weights).double().softmax(dim=1)
        return (total / (len(updates) + 1 + self.hparams.fedbe_models)).to(logits.dtype)

    def sample_models(
        self, round_index: int, updates: list[ClientUpdate], aggregated: Weights, server: ServerContext
    ) -> Iterator[Weights]:
        """The sampled global models of a round, one at a time to save memory."""
        shares = self._shares(updates)
        models = [update.weights for update in updates]
        of_gaussian = {"gaussian": 1.0, "dirichlet": 0.0, "both": 0.5}[self.hparams.fedbe_distribution]
        gaussian = round(self.hparams.fedbe_models * of_gaussian)
        parameters = [name for name, _ in server.model.named_parameters(remove_duplicate=False)]
        generator = torch_generator(self.seed, "fedbe", round_index)
        deviations = gaussian_deviations(models, shares, aggregated, parameters) if gaussian else {}
        for _ in range(gaussian):
            yield gaussian_model(aggregated, deviations, generator)
        chances = numpy_generator(self.seed, "fedbe", round_index)
        for _ in range(self.hparams.fedbe_models - gaussian):
            yield average(models, dirichlet_shares(shares, self.hparams.fedbe_alpha, chances))

    def distill(self, start: Weights, targets: Tensor, round_index: int, server: ServerContext) -> Weights:
        """Distill in cycles and average the ends of the later ones; one cycle is plain distillation."""
        cycles = min(self.hparams.fedbe_swa_cycles, self.hparams.refine_steps)
        if cycles == 1:
            return super().distill(start, targets, round_index, server)
        hparams = self.hparams
        steps = DistillationSteps(hparams.refine_steps, hparams.refine_lr, hparams.refine_batch_size, "cosine")
        generator = torch_generator(self.seed, "distillation", round_index)
        load_weights(server.model, start)
        ends = []
        for cycle in range(cycles):
            # As even as possible: ten steps in four cycles are 2, 3, 2, 3.
            length = (cycle + 1) * steps.refine_steps // cycles - cycle * steps.refine_steps // cycles
            server.distill(server.model, server.inputs, targets, replace(steps, refine_steps=length), generator)
            if 2 * cycle >= cycles - 1:
                ends.append(snapshot(server.model))
        return average(ends, [1 / len(ends)] * len(ends))

    def _shares(self, updates: list[ClientUpdate]) -> list[float]:
        """a_k, the shares of the average."""
        by_samples = self.settings.train.aggregation == "samples"
        counts = [float(update.samples) if by_samples else 1.0 for update in updates]
        return [count / sum(counts) for count in counts]


def gaussian_deviations(
    models: Sequence[Weights], shares: Sequence[float], mean: Weights, parameters: Sequence[str]
) -> dict[str, Tensor]:
    """sqrt(sum_k a_k (theta_k - mu)^2) of each parameter.

    >>> models = [{"w": torch.tensor([0.0])}, {"w": torch.tensor([4.0])}]
    >>> gaussian_deviations(models, [0.5, 0.5], {"w": torch.tensor([2.0])}, ["w"])
    {'w': tensor([2.])}
    """
    deviations = {}
    for name in parameters:
        squares = [
            share * (model[name].cpu() - mean[name].cpu()).square() for model, share in zip(models, shares, strict=True)
        ]
        deviations[name] = torch.stack(squares).sum(dim=0).sqrt()
    return deviations


def gaussian_model(mean: Weights, deviations: Weights, generator: torch.Generator) -> Weights:
    """A sample of N(mu, diag(deviation^2)); entries without a deviation are mu's."""
    return OrderedDict(
        (name, value.cpu() + deviations[name] * torch.randn(value.shape, generator=generator, dtype=value.dtype))
        if name in deviations
        else (name, value)
        for name, value in mean.items()
    )


def dirichlet_shares(shares: Sequence[float], alpha: float, generator: np.random.Generator) -> list[float]:
    """g_k a_k / sum_j g_j a_j with g ~ Dir(alpha, ..., alpha)."""
    drawn = generator.dirichlet([alpha] * len(shares)) * np.asarray(shares)
    return [float(share) for share in drawn / drawn.sum()]
