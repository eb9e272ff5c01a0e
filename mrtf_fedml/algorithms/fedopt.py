"""FedOpt: the mean update of the clients is a gradient for the server's optimiser.

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

from ..settings.kinds import VALIDATED, Positive
from .base import Algorithm
from .bench import ServerBench
from .exchange import ClientUpdate, Memory, RoundReport, ServerState, Weights
from .registry import register_algorithm

_FIRST, _SECOND = "first/", "second/"
_ADAPTIVE_LR = 0.01


@dataclass(frozen=True, config=VALIDATED)
class FedOptSettings:
    """FedOpt's keys in `train_args`; the names are FedML's."""

    #: What the server does with the mean update. `sgd` with server_lr 1 and server_momentum 0 is FedAvg.
    server_optimizer: Literal["sgd", "adam", "yogi", "adagrad"] = "sgd"
    #: The server's step. By itself 1 for `sgd`, which keeps an update's size, and 0.01 for the adaptive ones.
    server_lr: Positive | None = None
    #: Momentum of `sgd`, and beta_1 of `adam`, `yogi` and `adagrad`.
    server_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    #: beta_2 of `adam` and `yogi`.
    server_beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    #: tau of the adaptive optimisers: smaller is more adaptive.
    server_tau: Positive = 1e-3


@register_algorithm
class FedOpt(Algorithm):
    """theta_{t+1} = theta_t + server_lr * step, where the step follows from Delta = mean_k theta_{t,k} - theta_t.

    - sgd: m = server_momentum m + Delta; the step is m.
    - the others: m = beta_1 m + (1 - beta_1) Delta; the step is m / (sqrt(v) + tau), where v starts at tau^2 and
      - adagrad: v = v + Delta^2;
      - adam: v = beta_2 v + (1 - beta_2) Delta^2;
      - yogi: v = v - (1 - beta_2) Delta^2 sign(v - Delta^2).

    As in the paper's Algorithm 2 there is no correction of bias. Parameters alone are optimised: BatchNorm's statistics
    are averaged, since a step might make a variance negative.
    """

    name: ClassVar[str] = "FedOpt"
    Settings = FedOptSettings
    section: ClassVar[str] = "train_args"
    own: FedOptSettings

    def finish_round(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, bench: ServerBench
    ) -> tuple[ServerState, RoundReport]:
        """One step of the server's optimiser; its result is both the answer and the next start."""
        after, report = super().finish_round(state, updates, aggregated, bench)
        weights, memory = OrderedDict(aggregated), dict[str, Any]()
        # Tied parameters under each of their names: the last one loaded wins.
        for name, parameter in bench.model.named_parameters(remove_duplicate=False):
            if not parameter.is_floating_point():
                continue
            rule = self._momentum if self.own.server_optimizer == "sgd" else self._adaptive
            weights[name], moments = rule(name, state.weights[name], aggregated[name], state.memory)
            memory.update(moments)
        return replace(after, weights=weights, answer=weights, memory=memory), report

    def _momentum(self, name: str, old: Tensor, mean: Tensor, memory: Memory) -> tuple[Tensor, dict[str, Tensor]]:
        own = self.own
        rate = 1.0 if own.server_lr is None else own.server_lr
        before = memory.get(_FIRST + name)
        # theta + rate * (mean - theta), arranged so that rate 1 gives the mean itself, to the bit.
        moved = rate * mean + (1 - rate) * old
        if before is not None and own.server_momentum > 0:
            moved = moved + rate * own.server_momentum * before
        if own.server_momentum == 0:
            return moved, {}
        first = mean - old if before is None else own.server_momentum * before + (mean - old)
        return moved, {_FIRST + name: first}

    def _adaptive(self, name: str, old: Tensor, mean: Tensor, memory: Memory) -> tuple[Tensor, dict[str, Tensor]]:
        own = self.own
        rate = _ADAPTIVE_LR if own.server_lr is None else own.server_lr
        beta1, beta2, tau = own.server_momentum, own.server_beta2, own.server_tau
        delta = mean - old
        square = delta * delta
        first = beta1 * memory.get(_FIRST + name, torch.zeros_like(old)) + (1 - beta1) * delta
        second = memory.get(_SECOND + name, torch.full_like(old, tau**2))
        if own.server_optimizer == "adagrad":
            second = second + square
        elif own.server_optimizer == "adam":
            second = beta2 * second + (1 - beta2) * square
        else:
            second = second - (1 - beta2) * square * torch.sign(second - square)
        moved = old + rate * first / (second.sqrt() + tau)
        return moved, {_FIRST + name: first, _SECOND + name: second}
