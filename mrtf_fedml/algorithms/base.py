"""The contract of an algorithm. Its own rules are FedAvg's, so that a subclass overrides only what differs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor, nn

from ..models.weights import average
from ..settings import RunSettings
from ..settings.kinds import plain_values
from .bench import ServerBench
from .exchange import ClientTask, ClientUpdate, Extra, RoundReport, ServerState, Weights
from .local_training import LocalTerm, train_locally


@dataclass(frozen=True)
class NoSettings:
    """For an algorithm that has no keys of its own."""


class Algorithm:
    """One federated algorithm: what a client does in a round, and what the server does with what comes back.

    A round calls, in this order: `for_client` and `train_client` for each chosen client, then `aggregate` and
    `finish_round` on the server. Rules are values in, values out: an object keeps nothing between rounds, since each
    process has one of its own and a run may be killed and resumed at any round. What is to be kept goes into
    `ServerState.memory`; what a client needs beside theta_t, or tells beside its weights, goes into `extra`.

    - `memory`: tensors, or what JSON can say (numbers, texts, lists, dicts), by names of your own.
    - `extra`: tensors or numbers by names of your own, to one client (`for_client` -> `task.extra`) and back
      (`ClientUpdate.extra` -> `updates`). They arrive as tensors on the CPU. Under `dp_args` extras are refused, since
      no noise is on them.
    - `RoundReport.metrics`: numbers by names of your own; `RoundReport.predictions`: [M, C], scored as `acc_<name>`.
    - Randomness comes from `mrtf_fedml.randomness`, with names that say what it serves (`torch_generator(self.seed,
      "mine", client, task.round)`): then every backend gives the same bytes. PyTorch's global random state is
      seeded the same way inside `train_client` and `finish_round`, so dropout is reproducible too.

    Class attributes:
        name: the word of `federated_optimizer`.
        Settings: a dataclass (pydantic's or Python's own) with the algorithm's keys, their types and defaults.
        section: the YAML section that holds them; `<name>_args`, in lower case, where none is given.
        transductive: whether the server's rule reads the server's inputs.
        keeps_client_state: whether what a client does depends on what it did in earlier rounds.

    A complete one: clients tell how often the server has greeted them, and only learn when they are greeted well.

    >>> import torch, dataclasses
    >>> from mrtf_fedml import ClientUpdate, RoundReport, RunSettings
    >>> @dataclasses.dataclass(frozen=True)
    ... class GreetingSettings:
    ...     politeness: float = 0.5
    >>> class Greeting(Algorithm):
    ...     name = "Greeting"
    ...     Settings = GreetingSettings
    ...     def for_client(self, state, client):
    ...         return {"greetings": state.memory.get(f"greetings/{client}", 0) + 1}
    ...     def train_client(self, model, task):
    ...         moved = {k: v + self.own.politeness * task.extra["greetings"] for k, v in task.start.items()}
    ...         return ClientUpdate(task.client, task.samples, moved, loss=None, extra=task.extra)
    ...     def finish_round(self, state, updates, aggregated, bench):
    ...         after, _ = super().finish_round(state, updates, aggregated, bench)
    ...         greeted = {f"greetings/{u.client}": int(u.extra["greetings"]) for u in updates}
    ...         memory = {**state.memory, **greeted}
    ...         metrics = {"greetings": sum(memory.values())}
    ...         return dataclasses.replace(after, memory=memory), RoundReport(metrics)
    >>> greeting = Greeting(RunSettings())
    >>> state = greeting.first_state({"w": torch.zeros(1)})
    >>> for round_index in range(2):
    ...     tasks = [ClientTask(k, round_index, state.weights, [], 1, greeting.for_client(state, k)) for k in (0, 1)]
    ...     updates = [greeting.train_client(nn.Identity(), task) for task in tasks]
    ...     state, report = greeting.finish_round(state, updates, greeting.aggregate(updates), bench=None)
    >>> state.weights["w"], report.metrics
    (tensor([1.5000]), {'greetings': 4})
    """

    name: ClassVar[str] = ""
    Settings: ClassVar[type[Any]] = NoSettings
    section: ClassVar[str] = ""
    transductive: ClassVar[bool] = False
    keeps_client_state: ClassVar[bool] = False

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        #: The algorithm's own keys, validated.
        self.own: Any = settings.of(self.Settings, self.section_name())
        self.seed = settings.common.random_seed
        #: Whether its clients train as those of MrTF's authors do; where it is a base, MrTF says so.
        self.trains_as_released = False

    @classmethod
    def section_name(cls) -> str:
        """Where the YAML holds the algorithm's keys."""
        return cls.section or f"{cls.name.lower()}_args"

    def sections(self) -> dict[str, dict[str, Any]]:
        """The keys that this algorithm reads, as they were resolved, by section."""
        return {self.section_name(): plain_values(self.own)} if dataclasses.fields(self.Settings) else {}

    @classmethod
    def where_clients_only_train(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Settings for clients that can do no more than train: phones, and trainers of a user's own.

        Args:
            given: the keys of the algorithm's section that the user has written, with the preset's values left out.
        """
        return {}

    def has_own_client_rule(self) -> bool:
        """Whether its clients do more than FedAvg's, so that no trainer of somebody else's can stand in for them."""
        rules = ("for_client", "train_client", "local_term")
        return any(getattr(type(self), rule) is not getattr(Algorithm, rule) for rule in rules)

    def first_state(self, weights: Weights) -> ServerState:
        """The state before round 0: everybody starts from the same weights."""
        return ServerState(round=0, weights=weights, answer=weights)

    def for_client(self, state: ServerState, client: int) -> Extra:
        """What this client gets beside theta_t, by name."""
        return {}

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        """The client's rule: E epochs from theta_t on its own samples. What it returns is what is sent.

        Args:
            model: reusable, on its device; its weights are overwritten.
            task: theta_t, the samples, and what `for_client` gave.
        """
        weights, loss = train_locally(
            model,
            task.start,
            task.data,
            self.settings.train,
            self.seed,
            client=task.client,
            round_index=task.round,
            term=self.local_term(task),
            released=self.trains_as_released,
        )
        return ClientUpdate(task.client, task.samples, weights, loss)

    def local_term(self, task: ClientTask) -> LocalTerm | None:
        """What the algorithm adds to the client's loss or gradients, for one client in one round."""
        return None

    def aggregate(self, updates: list[ClientUpdate]) -> Weights:
        """theta_{t+1}: the mean over the chosen clients, or weighted by their sample counts."""
        by_samples = self.settings.train.aggregation == "samples"
        counts = [float(update.samples) if by_samples else 1.0 for update in updates]
        return average([update.weights for update in updates], [count / sum(counts) for count in counts])

    def finish_round(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, bench: ServerBench
    ) -> tuple[ServerState, RoundReport]:
        """The server's rule after averaging: the average is both the answer and the next start."""
        after = replace(state, round=state.round + 1, weights=aggregated, answer=aggregated)
        return after, RoundReport()

    def early_state(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, bench: ServerBench
    ) -> ServerState | None:
        """The next state as far as the next clients can tell, where it is known before `finish_round` is called.

        Where the clients are other processes (mpirun) they then train while the server finishes. Its weights, and what
        `for_client` makes of it, must be those of the state that `finish_round` returns; where they turn out not to be,
        what these clients did is dropped, and they are asked again. None: they wait.
        """
        return None

    def answer_logits(self, state: ServerState, bench: ServerBench) -> Tensor:
        """What is answered for the server's samples, [M, C]: logits, or logarithms of probabilities.

        It is what the model that answers says of them. An algorithm that corrects it keeps what it needs in `memory`:
        a run that was killed after its last round answers from its state.
        """
        return bench.logits(state.answer)

    def unusable(self, state: ServerState, update: ClientUpdate) -> str | None:
        """Why what a client tells beside its weights cannot be used, so that it is left out; None where it can.

        A silo may send anything under any name: what `finish_round` reads of `extra` is checked here, its form and its
        range. The weights fit the model, and all numbers are finite.
        """
        return None

    def skipped_round(self, state: ServerState) -> ServerState:
        """The state after a round in which nobody's update could be used: the old model is kept."""
        return replace(state, round=state.round + 1)
