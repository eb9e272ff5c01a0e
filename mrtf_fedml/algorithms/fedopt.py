"""FedOpt: the server's optimizer takes the mean client update as its gradient.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: "Adaptive Federated Optimization", ICLR 2021. With
`server_optimizer: sgd` it is the server momentum (FedAvgM) of Hsu, Qi, Brown, 2019.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from ..config.types import VALIDATED, PositiveFloat
from .base import Algorithm
from .registry import register_algorithm
from .server_context import ServerContext
from .types import ClientUpdate, Memory, RoundReport, ServerState, Weights

_FIRST, _SECOND = "first/", "second/"
_ADAPTIVE_LR = 0.01


@dataclass(frozen=True, config=VALIDATED)
class FedOptSettings:
    """FedOpt's keys in `train_args`; the names are FedML's."""

    #: The server's optimizer. `sgd` with server_lr 1 and server_momentum 0 is FedAvg.
    server_optimizer: Literal["sgd", "adam", "yogi", "adagrad"] = "sgd"
    #: The server's learning rate. Default: 1 for `sgd`, which keeps the size of an update, and 0.01 for the others.
    server_lr: PositiveFloat | None = None
    #: Momentum of `sgd`, and beta_1 of `adam`, `yogi` and `adagrad`.
    server_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    #: beta_2 of `adam` and `yogi`.
    server_beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    #: tau of the adaptive optimizers: smaller is more adaptive.
    server_tau: PositiveFloat = 1e-3


@register_algorithm
class FedOpt(Algorithm):
    """theta_{t+1} = theta_t + server_lr * step, where the step follows from Delta = mean_k theta_{t,k} - theta_t.

    - sgd: m = server_momentum m + Delta; the step is m.
    - the others: m = beta_1 m + (1 - beta_1) Delta; the step is m / (sqrt(v) + tau), where v starts at tau^2 and
      - adagrad: v = v + Delta^2;
      - adam: v = beta_2 v + (1 - beta_2) Delta^2;
      - yogi: v = v - (1 - beta_2) Delta^2 sign(v - Delta^2).

    As in the paper's Algorithm 2 there is no bias correction. Only parameters are optimized; BatchNorm's statistics are
    averaged, since a step might make a variance negative.
    """

    name: ClassVar[str] = "FedOpt"
    allows_different_models: ClassVar[bool] = True
    Settings = FedOptSettings
    section: ClassVar[str] = "train_args"
    hparams: FedOptSettings

    def server_update(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, server: ServerContext
    ) -> tuple[ServerState, RoundReport]:
        """One step of the server's optimizer; its result predicts and is broadcast."""
        after, report = super().server_update(state, updates, aggregated, server)
        weights, memory = OrderedDict(aggregated), dict[str, Any]()
        # Tied parameters are updated under each of their names, since the last one loaded wins.
        for name, parameter in server.model.named_parameters(remove_duplicate=False):
            if not parameter.is_floating_point():
                continue
            rule = self._momentum if self.hparams.server_optimizer == "sgd" else self._adaptive
            weights[name], moments = rule(name, state.weights[name], aggregated[name], state.memory)
            memory.update(moments)
        return replace(after, weights=weights, prediction_weights=weights, memory=memory), report

    def _momentum(self, name: str, old: Tensor, mean: Tensor, memory: Memory) -> tuple[Tensor, dict[str, Tensor]]:
        hparams = self.hparams
        rate = 1.0 if hparams.server_lr is None else hparams.server_lr
        momentum = memory.get(_FIRST + name)
        # theta + rate * (mean - theta), arranged so that rate 1 gives the mean itself, to the bit.
        updated = rate * mean + (1 - rate) * old
        if momentum is not None and hparams.server_momentum > 0:
            updated = updated + rate * hparams.server_momentum * momentum
        if hparams.server_momentum == 0:
            return updated, {}
        first = mean - old if momentum is None else hparams.server_momentum * momentum + (mean - old)
        return updated, {_FIRST + name: first}

    def _adaptive(self, name: str, old: Tensor, mean: Tensor, memory: Memory) -> tuple[Tensor, dict[str, Tensor]]:
        hparams = self.hparams
        rate = _ADAPTIVE_LR if hparams.server_lr is None else hparams.server_lr
        beta1, beta2, tau = hparams.server_momentum, hparams.server_beta2, hparams.server_tau
        delta = mean - old
        square = delta * delta
        first = beta1 * memory.get(_FIRST + name, torch.zeros_like(old)) + (1 - beta1) * delta
        second = memory.get(_SECOND + name, torch.full_like(old, tau**2))
        if hparams.server_optimizer == "adagrad":
            second = second + square
        elif hparams.server_optimizer == "adam":
            second = beta2 * second + (1 - beta2) * square
        else:
            second = second - (1 - beta2) * square * torch.sign(second - square)
        updated = old + rate * first / (second.sqrt() + tau)
        return updated, {_FIRST + name: first, _SECOND + name: second}
