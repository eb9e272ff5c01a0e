"""Scaffold: control variates correct the drift of the clients.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
ICML 2020.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from ..config import RunSettings, TrainSettings
from ..config.types import VALIDATED
from ..errors import UserError
from ..models.state_dict import inner_product
from .base import Algorithm
from .local_training import LocalTerm, gradient_at
from .registry import register_algorithm
from .server_context import ServerContext
from .types import ClientTask, ClientUpdate, Metric, Payload, RoundReport, ServerState, Weights, as_tensors

_SERVER = "server"
#: In MeasuredScaffold's payloads: the coefficient a_t that a client receives, and <g_k, c_k - c> that it returns.
_COEFFICIENT, _FIRST_GRADIENT = "scaffold/coefficient", "scaffold/first_gradient"
#: In MeasuredScaffold's memory: b_t and p_t.
_VARIATE_AGREEMENT, _GRADIENT_AGREEMENT = "variate_agreement", "gradient_agreement"
#: How far a variate may be from the direction of its update, as a fraction of its norm: rounding, and no lie.
_MAX_CONTRADICTION = 0.1
#: The weight of a round in the moving means b_t and p_t.
_ROUND_WEIGHT = 0.5

COEFFICIENT_METRIC = Metric("variate_coefficient", "coefficient of the control variates (a_t)")


@dataclass(frozen=True, config=VALIDATED)
class ScaffoldSettings:
    """Scaffold's keys in `train_args`."""

    #: How a client's variate is renewed: 1, the gradient at theta_t (one more pass over the client's samples), or 2,
    #: what the client's own steps amount to.
    scaffold_option: Literal[1, 2] = 2
    #: Whether clients keep `momentum`; without it they step by learning_rate alone.
    scaffold_momentum: bool = True


@register_algorithm
class Scaffold(Algorithm):
    """Clients step along g - c_k + c; c_k and c are what client k's and everybody's gradients are expected to be.

    The server keeps all variates, so a client may train in any process, and a client that comes back after many rounds
    finds its own. What travels is c - c_k with the weights, and the new c_k with the answer: each way twice a model.
    The global step is 1, as in the paper's experiments, so theta_{t+1} is FedAvg's average.
    """

    name: ClassVar[str] = "Scaffold"
    Settings = ScaffoldSettings
    section: ClassVar[str] = "train_args"
    keeps_client_state: ClassVar[bool] = True
    allows_momentum: ClassVar[bool] = True
    hparams: ScaffoldSettings

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        train, why_not = settings.train, self.find_conflict(settings)
        if why_not is not None:
            raise UserError(why_not)
        self.local: TrainSettings = train if self.hparams.scaffold_momentum else replace(train, momentum=0.0)

    @staticmethod
    def find_conflict(settings: RunSettings) -> str | None:
        """Why Scaffold cannot be used with these settings; None if it can."""
        if settings.train.client_optimizer != "sgd":
            return (
                "Scaffold's variates are gradients of SGD, but client_optimizer is "
                f"{settings.train.client_optimizer!r} (train_args); set it to sgd"
            )
        if settings.privacy.has_any_dp:
            return (
                "Scaffold's variates reveal a client's gradient without noise, so dp_args can promise no privacy; "
                "leave clip, sigma and enable_dp out, or choose another algorithm"
            )
        return None

    def client_payload(self, state: ServerState, client: int) -> Payload:
        """The correction c - c_k, one tensor per parameter; nothing while both are zero."""
        common = _variate(state, _SERVER)
        own = _variate(state, client)
        return {name: value - own[name] if name in own else value for name, value in common.items()}

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        """Corrected local steps, and the client's new variate."""
        names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        variate: Weights | None = None
        if self.hparams.scaffold_option == 1:
            variate = gradient_at(model, task.weights, task.data, self.seed, task.client, task.round)
        term = self.variate_term(task.payload)
        weights, loss = self.local_training(
            model,
            task.weights,
            task.data,
            self.local,
            self.seed,
            client=task.client,
            round_index=task.round,
            term=term,
        )
        if variate is None:
            # With momentum m, a step's gradient moves the weights by lr (1 + m + m^2 + ...) in the end.
            moved = term.steps * self.local.learning_rate / (1 - self.local.momentum)
            none = torch.zeros(())
            variate = {
                name: (task.weights[name].cpu() - weights[name]) / moved - term.correction.get(name, none).cpu()
                for name in names
            }
        return ClientUpdate(task.client, task.samples, weights, loss, {**variate, **term.measurements})

    def variate_term(self, payload: Weights) -> VariateTerm:
        """What changes the client's gradients, by what `client_payload` gave."""
        return VariateTerm(payload)

    def validate_update(self, state: ServerState, update: ClientUpdate) -> str | None:
        """Each variate must be of one of the model's weights; with option 2 it must agree with the update."""
        for name, value in update.payload.items():
            weight = state.weights.get(name)
            if weight is None or value.shape != weight.shape or value.dtype != weight.dtype:
                return f"its variate {name[:60]!r} is not of the form of a weight of the model"
        if self.hparams.scaffold_option == 2 and update.payload and self._contradicts(state, update):
            return "its variate contradicts its update"
        return None

    def _contradicts(self, state: ServerState, update: ClientUpdate) -> bool:
        """Whether the variate is not what option 2 makes of the update: (theta_t - theta_k) / moved - correction.

        `moved` depends on the client's number of steps; any positive number is accepted. The norm of the variate is
        compared with the others' elsewhere.
        """
        correction = self.variate_term(as_tensors(self.client_payload(state, update.client))).correction
        steps, variate = [], []
        for name, value in update.payload.items():
            added = correction.get(name)
            variate.append((value if added is None else value + added.to(value)).double().flatten())
            steps.append((state.weights[name].cpu() - update.weights[name].cpu()).double().flatten())
        step, along = torch.cat(steps), torch.cat(variate)
        length = float(step @ step)
        share = max(0.0, float(along @ step) / length) if length > 0 else 0.0
        norm = math.sqrt(inner_product(update.payload, update.payload))
        return float((along - share * step).norm()) > _MAX_CONTRADICTION * norm

    def server_update(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, server: ServerContext
    ) -> tuple[ServerState, RoundReport]:
        """Renew c = c + 1/K sum_k (new c_k - c_k), over the K clients there are; the average is the rest."""
        after, report = super().server_update(state, updates, aggregated, server)
        clients = self.settings.train.client_num_in_total
        memory = dict(state.memory)
        for update in updates:
            # FedML's defences may make one model of several clients': it has no variate of its own.
            if update.client < 0:
                continue
            for name, new in update.payload.items():
                old = state.memory.get(_key(update.client, name), torch.zeros_like(new))
                common = memory.get(_key(_SERVER, name), torch.zeros_like(new))
                memory[_key(_SERVER, name)] = common + (new - old) / clients
                memory[_key(update.client, name)] = new
        return replace(after, memory=memory), report


@register_algorithm
class MeasuredScaffold(Scaffold):
    """Clients step along g + a_t (c - c_k): between FedAvg's step and Scaffold's, as far as variates predict gradients.

    a_t = b_t p_t, two moving means (weight 1/2; 1 before the first measurement) over the clients k of a round that have
    a variate c_k of an earlier one. Both are clipped to [0, 1]:

        b = sum_k <c_k', c_k> / sum_k <c_k, c_k>                with c_k', the variate that k returns
        p = sum_k <g_k, c_k - c> / sum_k |c_k - c|^2            with g_k, the gradient of k's first batch at theta_t

    b is small where a variate is out of date when its client returns. It does not show variates that reproduce
    themselves: a client that comes to rest on a_t (c - c_k) has g = a_t (c_k - c), which is its new variate, though at
    theta_t, where no correction has acted, its gradient may be 0. p shows that. Then b follows a_t, and a_t falls
    geometrically to 0. A client returns one number more than in Scaffold; the measurement costs no pass.
    """

    name: ClassVar[str] = "MeasuredScaffold"
    measures_client_state: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (COEFFICIENT_METRIC,)

    def client_payload(self, state: ServerState, client: int) -> Payload:
        """The correction c - c_k and the coefficient a_t; nothing while the correction is zero."""
        correction = super().client_payload(state, client)
        return {**correction, _COEFFICIENT: _coefficient(state)} if correction else {}

    def variate_term(self, payload: Weights) -> VariateTerm:
        """Add a_t (c - c_k) to the gradients, and measure the first one."""
        correction = {name: value for name, value in payload.items() if name != _COEFFICIENT}
        return MeasuringVariateTerm(correction, float(payload.get(_COEFFICIENT, 0.0)))

    def validate_update(self, state: ServerState, update: ClientUpdate) -> str | None:
        """The variates' rules, and one number."""
        measured = update.payload.get(_FIRST_GRADIENT)
        if measured is not None and (measured.dim() != 0 or not measured.is_floating_point()):
            return f"its payload {_FIRST_GRADIENT!r} is not a number"
        return super().validate_update(state, _without_measurements(update))

    def server_update(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, server: ServerContext
    ) -> tuple[ServerState, RoundReport]:
        """Scaffold's, then measure the coefficient for the next round."""
        stripped = [_without_measurements(update) for update in updates]
        after, report = super().server_update(state, stripped, aggregated, server)
        common = _variate(state, _SERVER)
        # Numerators and denominators of b and p.
        kept = variates = along = corrections = 0.0
        for update in updates:
            old = _variate(state, update.client)
            if not old or _FIRST_GRADIENT not in update.payload:
                continue
            deviation = {name: value - common[name] for name, value in old.items()}
            kept += inner_product(update.payload, old)
            variates += inner_product(old, old)
            along += float(update.payload[_FIRST_GRADIENT])
            corrections += inner_product(deviation, deviation)
        memory = {
            **after.memory,
            _VARIATE_AGREEMENT: _moving_mean(state.memory.get(_VARIATE_AGREEMENT, 1.0), kept, variates),
            _GRADIENT_AGREEMENT: _moving_mean(state.memory.get(_GRADIENT_AGREEMENT, 1.0), along, corrections),
        }
        # Of this round, as the clients received it.
        metrics = {**report.metrics, COEFFICIENT_METRIC.name: _coefficient(state)}
        return replace(after, memory=memory), replace(report, metrics=metrics)


class VariateTerm(LocalTerm):
    """Adds the correction, c - c_k in Scaffold, to every gradient, and counts the steps.

    Attributes:
        correction: what is added, by parameter.
        steps: how many gradients were changed.
        measurements: numbers that the client returns with its variate, by name.
    """

    def __init__(self, correction: Weights) -> None:
        self.correction = correction
        self.steps = 0
        self.measurements: dict[str, Tensor] = {}
        self._on_device: dict[str, Tensor] = {}

    @torch.no_grad()
    def correct_gradients(self, model: nn.Module) -> None:
        """Make it g - c_k + c."""
        self.steps += 1
        for name, parameter in model.named_parameters():
            if parameter.grad is None or name not in self.correction:
                continue
            if name not in self._on_device:
                self._on_device[name] = self.correction[name].to(parameter)
            parameter.grad.add_(self._on_device[name])


class MeasuringVariateTerm(VariateTerm):
    """Adds `coefficient` times c - c_k, and measures <g, c_k - c>, where g is the first batch's gradient at theta_t."""

    def __init__(self, correction: Weights, coefficient: float) -> None:
        super().__init__({name: coefficient * value for name, value in correction.items()})
        self._full_correction = correction

    @torch.no_grad()
    def correct_gradients(self, model: nn.Module) -> None:
        """Measure the first gradient before it is changed."""
        if self.steps == 0 and self._full_correction:
            gradients = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
            along = -inner_product(gradients, self._full_correction)
            self.measurements[_FIRST_GRADIENT] = torch.tensor(along, dtype=torch.float64)
        super().correct_gradients(model)


def _moving_mean(before: float, numerator: float, denominator: float) -> float:
    """The mean after a round that measured the ratio; as before where there was nothing to measure."""
    if denominator <= 0:
        return before
    measured = min(1.0, max(0.0, numerator / denominator))
    return (1 - _ROUND_WEIGHT) * before + _ROUND_WEIGHT * measured


def _coefficient(state: ServerState) -> float:
    """a_t."""
    return float(state.memory.get(_VARIATE_AGREEMENT, 1.0) * state.memory.get(_GRADIENT_AGREEMENT, 1.0))


def _without_measurements(update: ClientUpdate) -> ClientUpdate:
    return replace(update, payload={name: value for name, value in update.payload.items() if name != _FIRST_GRADIENT})


def _key(owner: str | int, name: str) -> str:
    return f"{owner}/{name}"


def _variate(state: ServerState, owner: str | int) -> dict[str, Tensor]:
    """c, or the c_k of a client; empty where it is still zero."""
    keys: Mapping[str, str] = {name: _key(owner, name) for name in state.weights}
    return {name: state.memory[key] for name, key in keys.items() if key in state.memory}
