"""UWA: density-weighted distillation. A teacher speaks louder on samples that lie where its own samples lay.

Kovalchuk, Son, Bolatov, Guizani, Horváth, Panov, Takáč, Gorbunov, Kotelevskii: "Who to Trust? Aggregating Client
Predictions in Federated Distillation", 2025. From the paper is the principle: predictions of clients are weighed on
each sample by a density of the client's data, so that those to whom it is strange say little.

Ours is the form, since a client never sees the server's inputs: the density is a Gaussian for each class that the
client has, with one diagonal variance, on the features of theta_t, which are the same for all clients, so that
densities can be compared. The client tells its class shares, the mean features of its classes and that variance: more
than FedAvg's clients tell, and refused with `dp_args`. The student follows the weighted mean of probabilities.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from ..refinery.teachers import average_probabilities
from ..settings import RunSettings
from ..settings.kinds import VALIDATED, NonNegative
from .bench import ServerBench
from .client_features import doubles_of, features_of_client, refuse_noise
from .distilled import Distilled, DistilledSettings
from .exchange import ClientTask, ClientUpdate, ServerState, Weights
from .registry import register_algorithm

_DENSITY = ("shares", "means", "variance")
#: The part of the mean variance that is added to each, so that no direction decides alone.
_SHRINKAGE = 0.1
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True, config=VALIDATED)
class UWASettings(DistilledSettings):
    """UWA's key in `mrtf_args`."""

    #: The power of the densities, which are taken per feature: larger trusts single teachers more. 0: all count alike.
    uwa_sharpness: NonNegative = 4.0


@register_algorithm
class UWA(Distilled):
    """The targets are sum_k w_k(x) q_k(x), w_k(x) = softmax over k of s log p_k(h(x)) / D."""

    name: ClassVar[str] = "UWA"
    Settings = UWASettings
    own: UWASettings

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        refuse_noise(settings, self.name, "a density of their features")

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        """Local training, and the density of the client's features."""
        features, labels = features_of_client(model, task, self.settings.model.feature_layer, self.seed)
        density = dict(zip(_DENSITY, fitted_density(features, labels), strict=True))
        extra = {name: value.float() for name, value in density.items()}
        return replace(super().train_client(model, task), extra=extra)

    def unusable(self, state: ServerState, update: ClientUpdate) -> str | None:
        """Shares, means and variance must be a density, on features of one width."""
        density = doubles_of(update.extra, _DENSITY)
        if density is None:
            return None
        shares, means, variance = density
        fits = shares.ndim == variance.ndim == 1 and means.shape == (len(shares), len(variance)) and means.numel() > 0
        if fits and bool((shares > 0).all()) and bool((variance > 0).all()):
            return None
        return "what it tells of its features is no density"

    def targets(
        self, state: ServerState, updates: list[ClientUpdate], logits: Tensor, aggregated: Weights, bench: ServerBench
    ) -> Tensor:
        """The weighted mean of the teachers' probabilities."""
        features = bench.features(state.weights, torch.arange(len(bench.inputs))).double()
        densities = [doubles_of(update.extra, _DENSITY) for update in updates]
        # One of another width is of other features.
        densities = [each if each is not None and len(each[2]) == features.shape[1] else None for each in densities]
        heights = torch.zeros(logits.shape[:2], dtype=torch.float64, device=logits.device)
        known = [k for k, density in enumerate(densities) if density is not None]
        for k, density in enumerate(densities):
            if density is not None:
                heights[k] = log_density(features, *(part.to(features.device) for part in density))
        for k in set(range(len(updates))) - set(known):
            # Who tells no density is as trusted as the others on average.
            heights[k] = heights[known].mean(dim=0) if known else 0.0
        weights = torch.softmax(self.own.uwa_sharpness * heights / features.shape[1], dim=0)
        return average_probabilities(logits.double().softmax(dim=2), weights).to(logits.dtype)


def fitted_density(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The shares [G] and means [G, D] of the G classes that the client has, and the variance [D] within them.

    >>> fitted_density(torch.tensor([[0.0], [2.0], [10.0]]), torch.tensor([3, 3, 5]))[1]
    tensor([[ 1.],
            [10.]])
    """
    present, places, counts = labels.unique(return_inverse=True, return_counts=True)
    sums = torch.zeros(len(present), features.shape[1], dtype=features.dtype).index_add_(0, places, features)
    means = sums / counts[:, None]
    variance = (features - means[places]).square().mean(dim=0)
    # Classes of one sample each have no variance; the whole client's then gives the scale.
    scale = variance.mean() if variance.any() else features.var(dim=0, correction=0).mean()
    return counts.to(features) / len(labels), means, variance + _SHRINKAGE * scale + _LEAST_VARIANCE


def log_density(features: Tensor, shares: Tensor, means: Tensor, variance: Tensor) -> Tensor:
    """Log p(h) = log sum_g share_g N(h; mean_g, diag(variance)), [M].

    >>> log_density(torch.zeros(1, 2), torch.ones(1), torch.zeros(1, 2), torch.ones(2))  # -log 2 pi
    tensor([-1.8379])
    """
    precision = 1 / variance
    # |h - m|^2 by products: [M, G, D] is never made.
    squares = (
        (features.square() @ precision)[:, None]
        - 2 * features @ (means * precision).T
        + (means.square() @ precision)[None, :]
    )
    normaliser = (2 * math.pi * variance).log().sum()
    return torch.logsumexp(shares.log() - (squares.clamp_min(0) + normaliser) / 2, dim=1)
