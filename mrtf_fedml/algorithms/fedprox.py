"""FedProx.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks", MLSys 2020.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from .contract import Weights
from .fedavg import FedAvg
from .local_training import LocalTerm


class FedProx(FedAvg):
    """FedAvg whose clients minimise L_k(theta) + mu/2 ||theta - theta_t||^2, with mu `fedprox_mu`."""

    name: ClassVar[str] = "FedProx"
    own_keys: ClassVar[tuple[str, ...]] = ("fedprox_",)

    def local_term(self, start: Weights) -> LocalTerm | None:
        """The proximal term; with mu = 0 there is none, and this is FedAvg to the bit."""
        mu = self.settings.train.fedprox_mu
        return ProximalTerm(mu, start) if mu > 0 else None


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
