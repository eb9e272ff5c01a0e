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

from ..errors import UserError
from ..settings import RunSettings, TrainSettings
from ..settings.kinds import VALIDATED
from .base import Algorithm
from .bench import ServerBench
from .exchange import ClientTask, ClientUpdate, RoundReport, ServerState, Weights
from .local_training import LocalTerm, gradient_at, train_locally
from .registry import register_algorithm

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
    own: ScaffoldSettings

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        train, why_not = settings.train, self.refused_by(settings)
        if why_not is not None:
            raise UserError(why_not)
        self.local: TrainSettings = train if self.own.scaffold_momentum else replace(train, momentum=0.0)

    @staticmethod
    def refused_by(settings: RunSettings) -> str | None:
        """Why it cannot stand in such a run; None where it can."""
        if settings.train.client_optimizer != "sgd":
            return (
                "Scaffold's variates are gradients of SGD, but client_optimizer is "
                f"{settings.train.client_optimizer!r} (train_args); set it to sgd"
            )
        if settings.privacy.promised:
            return (
                "Scaffold's variates tell a client's gradient without noise, so no privacy (dp_args) can be promised; "
                "leave clip, sigma and enable_dp out, or choose another algorithm"
            )
        return None

    def for_client(self, state: ServerState, client: int) -> Weights:
        """The correction c - c_k, one tensor per parameter; nothing while both are zero."""
        common = _variate(state, _SERVER)
        own = _variate(state, client)
        return {name: value - own[name] if name in own else value for name, value in common.items()}

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        """Corrected local steps, and the client's new variate."""
        names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        variate: Weights | None = None
        if self.own.scaffold_option == 1:
            variate = gradient_at(model, task.start, task.data, self.seed, task.client, task.round)
        term = VariateTerm(task.extra)
        weights, loss = train_locally(
            model,
            task.start,
            task.data,
            self.local,
            self.seed,
            client=task.client,
            round_index=task.round,
            term=term,
            released=self.trains_as_released,
        )
        if variate is None:
            # With momentum m, a step's gradient moves the weights by lr (1 + m + m^2 + ...) in the end.
            moved = term.steps * self.local.learning_rate / (1 - self.local.momentum)
            variate = {
                name: (task.start[name].cpu() - weights[name]) / moved - task.extra.get(name, torch.zeros(())).cpu()
                for name in names
            }
        return ClientUpdate(task.client, task.samples, weights, loss, variate)

    def unusable(self, state: ServerState, update: ClientUpdate) -> str | None:
        """Each variate must be of one of the model's weights."""
        for name, value in update.extra.items():
            weight = state.weights.get(name)
            if weight is None or value.shape != weight.shape or value.dtype != weight.dtype:
                return f"its variate {name[:60]!r} is not of the form of a weight of the model"
        return None

    def finish_round(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, bench: ServerBench
    ) -> tuple[ServerState, RoundReport]:
        """Renew c = c + 1/K sum_k (new c_k - c_k), over the K clients there are; the average is the rest."""
        after, report = super().finish_round(state, updates, aggregated, bench)
        clients = self.settings.train.client_num_in_total
        memory = dict(state.memory)
        for update in updates:
            # FedML's defences may make one model of several clients': it has no variate of its own.
            if update.client < 0:
                continue
            for name, new in update.extra.items():
                old = state.memory.get(_key(update.client, name), torch.zeros_like(new))
                common = memory.get(_key(_SERVER, name), torch.zeros_like(new))
                memory[_key(_SERVER, name)] = common + (new - old) / clients
                memory[_key(update.client, name)] = new
        return replace(after, memory=memory), report


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
