"""FedMMD: two streams, of which the global one is fixed.

Yao, Huang, Zhang, Wu, Sun: "Two-Stream Federated Learning: Reduce the Communication Costs", VCIP 2018. The kernels are
those of Long, Cao, Wang, Jordan: "Learning Transferable Features with Deep Adaptation Networks", ICML 2015.
"""

from __future__ import annotations

import copy
from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from ..config.types import VALIDATED, NonNegativeFloat
from ..models import FeatureExtractor
from ..models.state_dict import load_weights
from .base import Algorithm
from .local_training import LocalTerm
from .registry import register_algorithm
from .types import ClientTask, Weights

#: The bandwidths, as multiples of the mean squared distance.
KERNEL_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, config=VALIDATED)
class FedMMDSettings:
    """FedMMD's key in `train_args`."""

    #: Weight of the squared discrepancy relative to the cross-entropy. 0 means no effect: FedAvg.
    mmd_weight: NonNegativeFloat = 0.1


@register_algorithm
class FedMMD(Algorithm):
    """FedAvg whose clients also keep their features h(x) near those of theta_t, with the weight `mmd_weight`."""

    name: ClassVar[str] = "FedMMD"
    allows_momentum: ClassVar[bool] = True
    Settings = FedMMDSettings
    section: ClassVar[str] = "train_args"
    hparams: FedMMDSettings

    def local_term(self, task: ClientTask) -> LocalTerm | None:
        """The discrepancy; with weight 0 there is none, and this is FedAvg to the bit."""
        if self.hparams.mmd_weight == 0:
            return None
        return DiscrepancyTerm(self.hparams.mmd_weight, task.weights, self.settings.model.feature_layer)


class DiscrepancyTerm(LocalTerm):
    """Adds weight * MMD^2 between the batch's features in the model that trains and in theta_t, in eval mode."""

    def __init__(self, weight: float, start: Weights, feature_layer: str | None) -> None:
        self.weight = weight
        self.start = start
        self.feature_layer = feature_layer
        self._global: tuple[nn.Module, FeatureExtractor] | None = None

    def forward(self, model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """The local model's logits, and the weighted discrepancy."""
        fixed, extractor = self._global_stream(model, inputs)
        with torch.no_grad():
            _, global_features = extractor.extract(fixed, inputs)
        logits, features = extractor.extract(model, inputs)
        return logits, self.weight * squared_discrepancy(features, global_features)

    def _global_stream(self, model: nn.Module, inputs: Tensor) -> tuple[nn.Module, FeatureExtractor]:
        if self._global is None:
            fixed = copy.deepcopy(model).eval()
            load_weights(fixed, self.start)
            self._global = fixed, FeatureExtractor(model, self.feature_layer, inputs[:2])
        return self._global


def squared_discrepancy(first: Tensor, second: Tensor) -> Tensor:
    """MMD^2 = mean k(x, x') + mean k(y, y') - 2 mean k(x, y), over all pairs, the equal ones too.

    k is the sum over `KERNEL_SCALES` of exp(-||a - b||^2 / (scale * s)), where s is the mean squared distance between
    two different rows of both sets together; no gradient flows through s.

    Args:
        first: x, [N, D].
        second: y, [M, D].

    >>> squared_discrepancy(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [1.0]]))
    tensor(0.)
    """
    rows = torch.cat([first, second])
    # Distances by products of centred rows: pairwise differences would need (N + M)^2 D numbers, and the root in cdist
    # has no gradient where rows are equal, as all are at the start.
    rows = rows - rows.detach().mean(dim=0)
    products = rows @ rows.T
    squares = products.diagonal()
    distances = (squares[:, None] + squares[None, :] - 2 * products).clamp_min(0)
    pairs = len(rows) * (len(rows) - 1)
    scale = (distances.detach().sum() / pairs).clamp_min(torch.finfo(distances.dtype).tiny)
    kernel = torch.stack([torch.exp(-distances / (scale * factor)) for factor in KERNEL_SCALES]).sum(dim=0)
    n = len(first)
    return kernel[:n, :n].mean() + kernel[n:, n:].mean() - kernel[:n, n:].mean() - kernel[n:, :n].mean()
