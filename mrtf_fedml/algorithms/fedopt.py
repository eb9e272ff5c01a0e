"""FedOpt: the mean update of the clients is a gradient for the server's optimiser.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: "Adaptive Federated Optimization", ICLR 2021. With
`server_optimizer: sgd` it is the server momentum (FedAvgM) of Hsu, Qi, Brown, 2019.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from .contract import (
    ClientUpdate,
    RoundReport,
    ServerBench,
    ServerState,
    Weights,
)
from .fedavg import FedAvg

_FIRST, _SECOND = "first/", "second/"
_ADAPTIVE_LR = 0.01


class FedOpt(FedAvg):
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
    own_keys: ClassVar[tuple[str, ...]] = ("server_",)

    def finish_round(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, bench: ServerBench
    ) -> tuple[ServerState, RoundReport]:
        """One step of the server's optimiser; its result is both the answer and the next start."""
        after, report = super().finish_round(state, updates, aggregated, bench)
        weights, memory = OrderedDict(aggregated), {}
        # Tied parameters under each of their names: the last one loaded wins.
        for name, parameter in bench.model.named_parameters(remove_duplicate=False):
            if not parameter.is_floating_point():
                continue
            rule = self._momentum if self.settings.train.server_optimizer == "sgd" else self._adaptive
            weights[name], moments = rule(name, state.weights[name], aggregated[name], state.memory)
            memory.update(moments)
        return replace(after, weights=weights, answer=weights, memory=memory), report

    def _momentum(self, name: str, old: Tensor, mean: Tensor, memory: Weights) -> tuple[Tensor, dict[str, Tensor]]:
        train = self.settings.train
        rate = 1.0 if train.server_lr is None else train.server_lr
        before = memory.get(_FIRST + name)
        # theta + rate * (mean - theta), arranged so that rate 1 gives the mean itself, to the bit.
        moved = rate * mean + (1 - rate) * old
        if before is not None and train.server_momentum > 0:
            moved = moved + rate * train.server_momentum * before
        if train.server_momentum == 0:
            return moved, {}
        first = mean - old if before is None else train.server_momentum * before + (mean - old)
        return moved, {_FIRST + name: first}

    def _adaptive(self, name: str, old: Tensor, mean: Tensor, memory: Weights) -> tuple[Tensor, dict[str, Tensor]]:
        train = self.settings.train
        rate = _ADAPTIVE_LR if train.server_lr is None else train.server_lr
        beta1, beta2, tau = train.server_momentum, train.server_beta2, train.server_tau
        delta = mean - old
        square = delta * delta
        first = beta1 * memory.get(_FIRST + name, torch.zeros_like(old)) + (1 - beta1) * delta
        second = memory.get(_SECOND + name, torch.full_like(old, tau**2))
        if train.server_optimizer == "adagrad":
            second = second + square
        elif train.server_optimizer == "adam":
            second = beta2 * second + (1 - beta2) * square
        else:
            second = second - (1 - beta2) * square * torch.sign(second - square)
        moved = old + rate * first / (second.sqrt() + tau)
        return moved, {_FIRST + name: first, _SECOND + name: second}
