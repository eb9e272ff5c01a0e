"""FedProx.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks", MLSys 2020.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from ..config.types import VALIDATED, NonNegativeFloat
from .base import Algorithm
from .local_training import LocalTerm
from .registry import register_algorithm
from .types import ClientTask, Weights


@dataclass(frozen=True, config=VALIDATED)
class FedProxSettings:
    """FedProx's key in `train_args`."""

    #: mu, the weight of 1/2 ||theta - theta_t||^2. 0 means no effect: FedAvg again. 0.001 to 1 make sense.
    fedprox_mu: NonNegativeFloat = 0.01


@register_algorithm
class FedProx(Algorithm):
    """FedAvg whose clients minimise L_k(theta) + mu/2 ||theta - theta_t||^2, with mu `fedprox_mu`."""

    name: ClassVar[str] = "FedProx"
    allows_different_models: ClassVar[bool] = True
    allows_momentum: ClassVar[bool] = True
    Settings = FedProxSettings
    section: ClassVar[str] = "train_args"
    hparams: FedProxSettings

    def local_term(self, task: ClientTask) -> LocalTerm | None:
        """The proximal term; with mu = 0 there is none, and this is FedAvg to the bit."""
        mu = self.hparams.fedprox_mu
        return ProximalTerm(mu, task.weights) if mu > 0 else None


class ProximalTerm(LocalTerm):
    """Adds mu (theta - theta_t), the proximal term's gradient, to that of the loss."""

    def __init__(self, mu: float, start: Weights) -> None:
        self.mu = mu
        self.start = start
        self._on_device: dict[str, Tensor] = {}

    @torch.no_grad()
    def correct_gradients(self, model: nn.Module) -> None:
        """Make it g + mu (theta - theta_t), for every parameter that the batch reached."""
        for name, parameter in model.named_parameters():
            if parameter.grad is None:
                continue
            if name not in self._on_device:
                self._on_device[name] = self.start[name].to(parameter)
            parameter.grad.add_(parameter - self._on_device[name], alpha=self.mu)
