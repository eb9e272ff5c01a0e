"""UWA: density-weighted distillation. A teacher has a larger weight on samples that are similar to its own.

Kovalchuk, Son, Bolatov, Guizani, Horváth, Panov, Takáč, Gorbunov, Kotelevskii: "Who to Trust? Aggregating Client
Predictions in Federated Distillation", 2025. The principle is the paper's: clients' predictions are weighted on each
sample by a density of the client's data.

The form of the density is ours, since our clients do not receive the server's inputs: one Gaussian per class of the
client, with one diagonal variance, on the features of theta_t, which are the same for all clients, so that densities
can be compared. The client reports its class shares, the mean features of its classes and the variance. This is more
than FedAvg's clients report, and `dp_args` are rejected. The student's targets are the weighted mean of probabilities.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from ...config import RunSettings
from ...config.types import VALIDATED, NonNegativeFloat
from ...refinery.ensemble import average_probabilities
from ..registry import register_algorithm
from ..server_context import ServerContext
from ..types import ClientTask, ClientUpdate, ServerState, Weights
from .base import (
    DistillationBaseline,
    DistillationBaselineSettings,
    client_features,
    payload_doubles,
    reject_privacy,
)

_DENSITY = ("shares", "means", "variance")
#: Fraction of the mean variance that is added to each variance, so that no single direction dominates.
_SHRINKAGE = 0.1
_MIN_VARIANCE = 1e-6


@dataclass(frozen=True, config=VALIDATED)
class UWASettings(DistillationBaselineSettings):
    """UWA's key in `mrtf_args`."""

    #: Exponent of the densities, per feature: larger values give single teachers more weight. 0: uniform weights.
    uwa_sharpness: NonNegativeFloat = 4.0


@register_algorithm
class UWA(DistillationBaseline):
    """The targets are sum_k w_k(x) q_k(x), w_k(x) = softmax over k of s log p_k(h(x)) / D."""

    name: ClassVar[str] = "UWA"
    Settings = UWASettings
    hparams: UWASettings

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        reject_privacy(settings, self.name, "a density of their features")

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        """Local training, and the density of the client's features."""
        features, labels = client_features(model, task, self.settings.model.feature_layer, self.seed)
        density = dict(zip(_DENSITY, fit_density(features, labels), strict=True))
        payload = {name: value.float() for name, value in density.items()}
        return replace(super().train_client(model, task), payload=payload)

    def validate_update(self, state: ServerState, update: ClientUpdate) -> str | None:
        """Reject shares, means and variance that are not a density on features of one width."""
        density = payload_doubles(update.payload, _DENSITY)
        if density is None:
            return None
        shares, means, variance = density
        fits = shares.ndim == variance.ndim == 1 and means.shape == (len(shares), len(variance)) and means.numel() > 0
        if fits and bool((shares > 0).all()) and bool((variance > 0).all()):
            return None
        return "what it reports of its features is no density"

    def targets(
        self,
        state: ServerState,
        updates: list[ClientUpdate],
        logits: Tensor,
        aggregated: Weights,
        server: ServerContext,
    ) -> Tensor:
        """The weighted mean of the teachers' probabilities."""
        features = server.features(state.weights, torch.arange(len(server.inputs))).double()
        densities = [payload_doubles(update.payload, _DENSITY) for update in updates]
        # A density of another width belongs to other features.
        densities = [each if each is not None and len(each[2]) == features.shape[1] else None for each in densities]
        log_densities = torch.zeros(logits.shape[:2], dtype=torch.float64, device=logits.device)
        known = [k for k, density in enumerate(densities) if density is not None]
        for k, density in enumerate(densities):
            if density is not None:
                log_densities[k] = log_density(features, *(part.to(features.device) for part in density))
        for k in set(range(len(updates))) - set(known):
            # A client without a density gets the mean of the others.
            log_densities[k] = log_densities[known].mean(dim=0) if known else 0.0
        weights = torch.softmax(self.hparams.uwa_sharpness * log_densities / features.shape[1], dim=0)
        return average_probabilities(logits.double().softmax(dim=2), weights).to(logits.dtype)


def fit_density(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Shares [G] and means [G, D] of the G classes of the client, and the variance [D] within classes.

    >>> fit_density(torch.tensor([[0.0], [2.0], [10.0]]), torch.tensor([3, 3, 5]))[1]
    tensor([[ 1.],
            [10.]])
    """
    classes, indices, counts = labels.unique(return_inverse=True, return_counts=True)
    sums = torch.zeros(len(classes), features.shape[1], dtype=features.dtype).index_add_(0, indices, features)
    means = sums / counts[:, None]
    variance = (features - means[indices]).square().mean(dim=0)
    # If each class has one sample, there is no variance within classes; the client's total variance sets the scale.
    scale = variance.mean() if variance.any() else features.var(dim=0, correction=0).mean()
    return counts.to(features) / len(labels), means, variance + _SHRINKAGE * scale + _MIN_VARIANCE


def log_density(features: Tensor, shares: Tensor, means: Tensor, variance: Tensor) -> Tensor:
    """Log p(h) = log sum_g share_g N(h; mean_g, diag(variance)), [M].

    >>> log_density(torch.zeros(1, 2), torch.ones(1), torch.zeros(1, 2), torch.ones(2))  # -log 2 pi
    tensor([-1.8379])
    """
    precision = 1 / variance
    # |h - m|^2 by matrix products, without an array [M, G, D].
    squares = (
        (features.square() @ precision)[:, None]
        - 2 * features @ (means * precision).T
        + (means.square() @ precision)[None, :]
    )
    normaliser = (2 * math.pi * variance).log().sum()
    return torch.logsumexp(shares.log() - (squares.clamp_min(0) + normaliser) / 2, dim=1)
