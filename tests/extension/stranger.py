"""Two algorithms as a user would write them, in a file of his own: only public names, and no edit of the package."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

import mrtf_fedml
from mrtf_fedml import ClientTask, ClientUpdate, LocalTerm, RoundReport, ServerContext, ServerState
from mrtf_fedml.rng import torch_generator


class Net(nn.Module):
    """A net of a few hundred numbers, with dropout and with a BatchNorm's counters."""

    def __init__(self, input_dim: int, num_classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(), nn.Linear(input_dim, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2)
        )
        self.head = nn.Linear(16, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


@dataclass(frozen=True)
class StrangerSettings:
    """Of several types; `refine_steps` and its kin are what `server.distil` asks for, and MrTF's keys too."""

    pull: float = 0.05
    patience: int = 2
    careful: bool = True
    voting: Literal["soft", "hard"] = "soft"
    refine_steps: int = 4
    refine_lr: float = 0.002
    refine_batch_size: int = 64


class Stranger(mrtf_fedml.Algorithm):
    """Clients are pulled along their last drift; the server distils the clients' votes into the model."""

    name = "Stranger"
    Settings = StrangerSettings
    transductive = True
    hparams: StrangerSettings

    def init_state(self, weights: Any) -> ServerState:
        first = super().init_state(weights)
        return replace(first, memory={"visits": {}, "history": [], "voted": "never", "agreement": torch.zeros(())})

    def client_payload(self, state: ServerState, client: int) -> dict[str, Any]:
        visits = state.memory["visits"].get(str(client), 0)
        extra: dict[str, Any] = {"visits": visits, "agreement": state.memory["agreement"]}
        if visits:
            extra["drift"] = state.memory[f"drift/{client}"]
        return extra

    def local_term(self, task: ClientTask) -> LocalTerm:
        return Pull(self.hparams.pull, task.payload.get("drift"))

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        update = super().train_client(model, task)
        noise = torch.randn(10, generator=torch_generator(self.seed, "stranger", task.client, task.round))
        drift = update.weights["head.bias"] - task.weights["head.bias"] + 0.01 * noise
        # The payload belongs to this client: writing into it must not affect others.
        visits = task.payload["visits"].add_(1)
        return replace(update, payload={"visits": visits, "drift": drift, "doubt": 1.0 / (1 + task.samples)})

    def aggregate(self, updates: list[ClientUpdate]) -> dict[str, Tensor]:
        trust = [1.0 - float(update.payload["doubt"]) if self.hparams.careful else 1.0 for update in updates]
        weights = {}
        for name, first in updates[0].weights.items():
            if not first.is_floating_point():
                weights[name] = first
                continue
            weighed = [share * update.weights[name] for share, update in zip(trust, updates, strict=True)]
            weights[name] = torch.stack(weighed).sum(dim=0) / sum(trust)
        return weights

    def server_update(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Any, server: ServerContext
    ) -> tuple[ServerState, RoundReport]:
        after, _ = super().server_update(state, updates, aggregated, server)
        each = torch.stack([torch.softmax(server.logits(update.weights), dim=1) for update in updates])
        votes = each.mean(dim=0)
        targets = votes if self.hparams.voting == "soft" else nn.functional.one_hot(votes.argmax(dim=1), server.classes)
        server.model.load_state_dict(aggregated)
        generator = torch_generator(self.seed, "stranger's distillation", state.round)
        loss = server.distill(server.model, server.inputs, targets.float(), self.hparams, generator)
        disagreement = float((each.argmax(dim=2) != votes.argmax(dim=1)).double().mean())
        memory = {
            **state.memory,
            **{f"drift/{update.client}": update.payload["drift"] for update in updates},
            "visits": state.memory["visits"]
            | {str(update.client): int(update.payload["visits"]) for update in updates},
            "history": [*state.memory["history"], disagreement][-self.hparams.patience :],
            "voted": self.hparams.voting,
            "agreement": torch.tensor(1 - disagreement),
            # A part of the model itself, and not a copy of it.
            "head": aggregated["head.weight"],
        }
        # As one would write it: the server's model is used again, but this is what it holds now.
        after = replace(after, prediction_weights=server.model.state_dict(), memory=memory)
        return after, RoundReport({"disagreement": disagreement, "vote_loss": loss}, {"votes": votes})


class Pull(LocalTerm):
    """Adds the old drift to the gradient of the last bias, and a little weight to large logits."""

    def __init__(self, strength: float, drift: Tensor | None) -> None:
        self.strength = strength
        self.drift = drift

    def forward(self, model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        logits = model(inputs)
        return logits, self.strength * logits.square().mean()

    def correct_gradients(self, model: nn.Module) -> None:
        gradient = model.get_parameter("head.bias").grad
        if self.drift is not None and gradient is not None:
            gradient.sub_(self.drift, alpha=self.strength)


@dataclass(frozen=True)
class WandererSettings:
    """One key."""

    memory_share: float = 0.5


class Wanderer(mrtf_fedml.Algorithm):
    """A base for the refinery: each client starts slightly towards its last local weights."""

    name = "Wanderer"
    Settings = WandererSettings
    section = "wanderer"
    keeps_client_state = True

    def client_payload(self, state: ServerState, client: int) -> dict[str, Any]:
        prefix = f"last/{client}/"
        return {key[len(prefix) :]: value for key, value in state.memory.items() if key.startswith(prefix)}

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        share = self.hparams.memory_share
        start = {
            name: torch.lerp(value, task.payload[name], share) if name in task.payload else value
            for name, value in task.weights.items()
        }
        update = super().train_client(model, replace(task, weights=start))
        return replace(update, payload={name: value for name, value in update.weights.items() if "head" in name})

    def server_update(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Any, server: ServerContext
    ) -> tuple[ServerState, RoundReport]:
        after, _ = super().server_update(state, updates, aggregated, server)
        kept = {f"last/{update.client}/{name}": value for update in updates for name, value in update.payload.items()}
        return replace(after, memory={**state.memory, **kept}), RoundReport({"wanderers": len(kept) // 2})
