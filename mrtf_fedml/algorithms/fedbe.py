"""FedBE: global models sampled around the clients' teach the average, together with the clients and the average itself.

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

from ..models.weights import average, load, snapshot
from ..randomness import numpy_generator, torch_generator
from ..settings.kinds import VALIDATED, Count, Positive, Steps
from .bench import ServerBench
from .distilled import Distilled, DistilledSettings
from .exchange import ClientUpdate, ServerState, Weights
from .registry import register_algorithm


@dataclass(frozen=True, config=VALIDATED)
class FedBESettings(DistilledSettings):
    """FedBE's keys in `mrtf_args`."""

    #: Where global models are sampled from: a Gaussian around the average, weights in the clients' Dirichlet-drawn
    #: proportions, or half of them from each.
    fedbe_distribution: Literal["gaussian", "dirichlet", "both"] = "gaussian"
    #: How many global models are sampled per round. 0: the clients and the average teach alone.
    fedbe_models: Steps = 10
    #: Concentration of the Dirichlet. Small values pick single clients, very large ones give the average.
    fedbe_alpha: Positive = 1.0
    #: The student's steps are cut into so many cycles, in each of which the rate falls to nothing; the weights at the
    #: ends of the later half of them are averaged (SWA). 1: plain steps at one rate.
    fedbe_swa_cycles: Count = 4


@register_algorithm
class FedBE(Distilled):
    """The targets are the mean probabilities of the K clients, the average and the sampled models.

    With a_k the clients' shares in the average and mu = sum_k a_k theta_k:

    - Gaussian: theta ~ N(mu, diag(sum_k a_k (theta_k - mu)^2)), parameters alone; BatchNorm's statistics are mu's.
    - Dirichlet: theta = sum_k g_k a_k theta_k / sum_k g_k a_k, g ~ Dir(alpha, ..., alpha).
    """

    name: ClassVar[str] = "FedBE"
    Settings = FedBESettings
    own: FedBESettings

    def targets(
        self, state: ServerState, updates: list[ClientUpdate], logits: Tensor, aggregated: Weights, bench: ServerBench
    ) -> Tensor:
        """The Bayesian ensemble."""
        total = logits.double().softmax(dim=2).sum(dim=0) + bench.logits(aggregated).double().softmax(dim=1)
        for weights in self.sampled(state.round, updates, aggregated, bench):
            total += bench.logits(weights).double().softmax(dim=1)
        return (total / (len(updates) + 1 + self.own.fedbe_models)).to(logits.dtype)

    def sampled(
        self, round_index: int, updates: list[ClientUpdate], aggregated: Weights, bench: ServerBench
    ) -> Iterator[Weights]:
        """The global models of a round, one after the other: each is as large as a client's."""
        shares = self._shares(updates)
        models = [update.weights for update in updates]
        of_gaussian = {"gaussian": 1.0, "dirichlet": 0.0, "both": 0.5}[self.own.fedbe_distribution]
        gaussian = round(self.own.fedbe_models * of_gaussian)
        parameters = [name for name, _ in bench.model.named_parameters(remove_duplicate=False)]
        generator = torch_generator(self.seed, "fedbe", round_index)
        deviations = gaussian_deviations(models, shares, aggregated, parameters) if gaussian else {}
        for _ in range(gaussian):
            yield gaussian_model(aggregated, deviations, generator)
        chances = numpy_generator(self.seed, "fedbe", round_index)
        for _ in range(self.own.fedbe_models - gaussian):
            yield average(models, dirichlet_shares(shares, self.own.fedbe_alpha, chances))

    def taught(self, start: Weights, targets: Tensor, round_index: int, bench: ServerBench) -> Weights:
        """Several cycles, and the mean of where the later ones end; one cycle is plain distillation."""
        cycles = min(self.own.fedbe_swa_cycles, self.own.refine_steps)
        if cycles == 1:
            return super().taught(start, targets, round_index, bench)
        steps = replace(self.steps_of(round_index), refine_schedule="cosine")
        generator = torch_generator(self.seed, "distillation", round_index)
        load(bench.model, start)
        ends = []
        for cycle in range(cycles):
            # As even as can be: ten steps in four cycles are 2, 3, 2, 3.
            length = (cycle + 1) * steps.refine_steps // cycles - cycle * steps.refine_steps // cycles
            bench.distil(bench.model, bench.inputs, targets, replace(steps, refine_steps=length), generator)
            if 2 * cycle >= cycles - 1:
                ends.append(snapshot(bench.model))
        return average(ends, [1 / len(ends)] * len(ends))

    def _shares(self, updates: list[ClientUpdate]) -> list[float]:
        """a_k, as in the average."""
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
    """Theta ~ N(mu, diag(deviation^2)); what has no deviation is mu's."""
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
