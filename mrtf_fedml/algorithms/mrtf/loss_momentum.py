"""Momentum of the base's server step (`mrtf_args.loss_momentum`): longer steps while the clients have learnt little."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ...models.state_dict import inner_product
from ...refinery.ensemble import relative_loss
from ..base import Algorithm
from ..server_context import ServerContext
from ..types import ClientUpdate, Metric, RoundReport, ServerState, Weights, mean_loss
from ..wrapper import AlgorithmWrapper

#: In the server's memory, the entries of m have this prefix.
PREFIX = "momentum/"
#: beta_t while the relative loss is at least the second number; less, in proportion, below (docs/lab/choices.md).
_MOMENTUM, _LEARNT_LITTLE = 0.9, 0.5
#: Momentum lengthens a step to at most this share of the weights' norm (docs/lab/choices.md).
_LARGEST_STEP = 0.15

MOMENTUM_METRIC = Metric("server_momentum", "momentum of the server's step (beta_t)")


class LossMomentum(AlgorithmWrapper):
    """The base, whose server step Delta_t = theta' - theta_t from theta_t to its new weights theta' has momentum.

        m_t = beta_t m_{t-1} + Delta_t,   theta_{t+1} = theta_t + m_t,   beta_t <= 0.9 min(1, 2 L_t / log C)

    L_t is the clients' mean local loss, and log C that of uniform predictions. Clients of few classes step in different
    directions, so that their mean is much shorter than each of their steps. Momentum adds up what the rounds have in
    common: with a constant Delta the step becomes 1 / (1 - beta) times as long. Once the clients' own steps reach their
    minima, longer steps overshoot; then L_t is small. With a constant beta it is FedAvgM (Hsu, Qi, Brown, 2019).

    beta_t is the largest with |m_t| <= max(|Delta_t|, 0.15 |theta_t|): where single steps already change the weights
    much, as those of convolutional networks do, momentum overshoots while L_t is still high.

    Momentum would repeat the step of a lying client while the loss, which the lie keeps high, keeps beta_t high. So
    beta_t is 0 in a round in which an update points against the others'. Where none does, but some were shortened, m_t
    gets the step to the mean of the other updates; honest clients whose data differ send such updates now and then.

    Only parameters have momentum; BatchNorm's statistics are the base's. The first round is the base's, to the bit.
    """

    name: ClassVar[str] = "LossMomentum"
    prefix: ClassVar[str] = PREFIX

    def __init__(self, base: Algorithm) -> None:
        super().__init__(base.settings)
        self.inner = base

    def server_update(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, server: ServerContext
    ) -> tuple[ServerState, RoundReport]:
        """The base's, then add beta_t m_{t-1}; the result predicts and is broadcast."""
        after, report = self.inner.server_update(self.inner_state(state), updates, aggregated, server)
        # Tied parameters are updated under each of their names, since the last one loaded wins.
        parameters = server.model.named_parameters(remove_duplicate=False)
        names = [name for name, parameter in parameters if parameter.is_floating_point()]
        beta = momentum_coefficient(updates, server.classes)
        before = {name: state.memory[PREFIX + name] for name in names if PREFIX + name in state.memory}
        if before:
            theta = {name: state.weights[name] for name in names}
            step = {name: after.weights[name] - theta[name] for name in names}
            beta = bounded_coefficient(beta, before, step, theta)
        mean = self._repeated_mean(state, after, updates)
        weights, momentum = OrderedDict(after.weights), dict[str, Any]()
        for name in names:
            repeated = mean[name] - state.weights[name]
            if name in before:
                repeated = repeated + beta * before[name]
                weights[name] = after.weights[name] + beta * before[name]
            momentum[PREFIX + name] = repeated
        after = replace(after, weights=weights, prediction_weights=weights, memory={**after.memory, **momentum})
        return after, replace(report, metrics={**report.metrics, MOMENTUM_METRIC.name: beta})

    def _repeated_mean(self, state: ServerState, after: ServerState, updates: list[ClientUpdate]) -> Weights:
        """The mean to which the step in m_t leads: theta', or without shortened updates; theta_t if none is left."""
        usual = [update for update in updates if not update.is_outlier]
        if len(usual) == len(updates) or any(update.is_opposed for update in updates):
            return after.weights
        # FedML's noise was added to the mean of all updates.
        return self.inner.aggregate(usual) if usual and not self.settings.privacy.has_any_dp else state.weights


def momentum_coefficient(updates: Sequence[ClientUpdate], classes: int) -> float:
    """beta_t; 0 where no client reports a loss, or an update points against the others'.

    >>> import math
    >>> losses = (0.0, math.log(4) / 2)
    >>> momentum_coefficient([ClientUpdate(k, 9, {}, loss) for k, loss in enumerate(losses)], classes=4)
    0.45
    """
    loss = mean_loss(updates)
    if loss is None or any(update.is_opposed for update in updates):
        return 0.0
    return _MOMENTUM * min(1.0, relative_loss(loss, classes) / _LEARNT_LITTLE)


def bounded_coefficient(beta: float, momentum: Weights, step: Weights, weights: Weights) -> float:
    """The largest b in [0, beta] with |step + b momentum| <= max(|step|, 0.15 |weights|).

    >>> import torch
    >>> theta, one = {"w": torch.tensor([10.0, 0.0])}, {"w": torch.tensor([1.0, 0.0])}
    >>> [round(bounded_coefficient(beta, one, one, theta), 6) for beta in (0.3, 0.9)]
    [0.3, 0.5]
    >>> bounded_coefficient(0.9, one, {"w": torch.tensor([2.0, 0.0])}, theta)
    0.0
    """
    along, squared = inner_product(momentum, step), inner_product(momentum, momentum)
    own = inner_product(step, step)
    room = max(0.0, _LARGEST_STEP**2 * inner_product(weights, weights) - own)
    if 2 * beta * along + beta**2 * squared <= room:
        return beta
    # The larger root of |step + b momentum|^2 = |step|^2 + room.
    return min(beta, max(0.0, (math.sqrt(along**2 + squared * room) - along) / squared))
