"""Scaffold: control variates correct the drift of the clients.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
ICML 2020.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from ..config import RunSettings, TrainSettings
from ..config.types import VALIDATED, PositiveFloat
from ..errors import UserError
from .base import Algorithm
from .local_training import LocalTerm, gradient_at
from .registry import register_algorithm
from .server_context import ServerContext
from .types import ClientTask, ClientUpdate, RoundReport, ServerState, Weights

_SERVER = "server"


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
    hparams: ScaffoldSettings

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        train, why_not = settings.train, self.refused_by(settings)
        if why_not is not None:
            raise UserError(why_not)
        self.local: TrainSettings = train if self.hparams.scaffold_momentum else replace(train, momentum=0.0)

    @staticmethod
    def refused_by(settings: RunSettings) -> str | None:
        """Why it cannot stand in such a run; None where it can."""
        if settings.train.client_optimizer != "sgd":
            return (
                "Scaffold's variates are gradients of SGD, but client_optimizer is "
                f"{settings.train.client_optimizer!r} (train_args); set it to sgd"
            )
        if settings.privacy.has_any_dp:
            return (
                "Scaffold's variates tell a client's gradient without noise, so no privacy (dp_args) can be promised; "
                "leave clip, sigma and enable_dp out, or choose another algorithm"
            )
        return None

    def client_payload(self, state: ServerState, client: int) -> Weights:
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
        term = VariateTerm(task.payload)
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
            variate = {
                name: (task.weights[name].cpu() - weights[name]) / moved - task.payload.get(name, torch.zeros(())).cpu()
                for name in names
            }
        return ClientUpdate(task.client, task.samples, weights, loss, variate)

    def validate_update(self, state: ServerState, update: ClientUpdate) -> str | None:
        """Each variate must be of one of the model's weights."""
        for name, value in update.payload.items():
            weight = state.weights.get(name)
            if weight is None or value.shape != weight.shape or value.dtype != weight.dtype:
                return f"its variate {name[:60]!r} is not of the form of a weight of the model"
        return None

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


@dataclass(frozen=True, config=VALIDATED)
class FadingScaffoldSettings(ScaffoldSettings):
    """Scaffold's keys, and how fast the correction fades."""

    #: After so many rounds the correction counts half, after twice as many a quarter.
    scaffold_half_life: PositiveFloat = 20.0


@register_algorithm
class FadingScaffold(Scaffold):
    """Clients step along g + a_t (c - c_k), a_t = 2^(-t / H): Scaffold's step in round 0, FedAvg's in the end."""

    name: ClassVar[str] = "FadingScaffold"
    Settings = FadingScaffoldSettings
    hparams: FadingScaffoldSettings

    def client_payload(self, state: ServerState, client: int) -> Weights:
        """The correction a_t (c - c_k); a client's new variate is what its own gradients were, whatever was added."""
        share = 0.5 ** (state.round / self.hparams.scaffold_half_life)
        return {name: share * value for name, value in super().client_payload(state, client).items()}


class VariateTerm(LocalTerm):
    """Adds c - c_k to every gradient, and counts the steps."""

    def __init__(self, correction: Weights) -> None:
        self.correction = correction
        self.steps = 0
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


def _key(owner: str | int, name: str) -> str:
    return f"{owner}/{name}"


def _variate(state: ServerState, owner: str | int) -> dict[str, Tensor]:
    """c, or the c_k of a client; empty where it is still zero."""
    prefix = _key(owner, "")
    return {key[len(prefix) :]: value for key, value in state.memory.items() if key.startswith(prefix)}
