"""The contract of an algorithm. Its own rules are FedAvg's, so that a subclass overrides only what differs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor, nn

from ..config import RunSettings
from ..config.types import to_plain_values
from ..errors import UserError
from ..models.group import ACTIVE, average_by_member
from ..models.state_dict import average
from .local_training import LocalTerm, LocalTraining, train_locally
from .server_context import ServerContext
from .types import ClientTask, ClientUpdate, Metric, Payload, RoundReport, ServerState, Weights


@dataclass(frozen=True)
class NoSettings:
    """For an algorithm without settings."""


class Algorithm:
    """One federated algorithm: what a client does in a round, and what the server does with the updates.

    A round calls, in this order: `client_payload` and `train_client` for each selected client, then `validate_update`
    for each reply, then `aggregate` and `server_update`. An algorithm keeps nothing on the object between rounds: each
    process has an object of its own, and a run can be killed and resumed after any round. State of the server goes into
    `ServerState.memory`.

    - `memory`: tensors, or values that JSON can represent, by names of your choice.
    - `payload`: tensors or numbers by names of your choice, sent with the weights to one client (`client_payload` ->
      `task.payload`) and back (`ClientUpdate.payload` -> `updates`). They arrive as tensors on the CPU. With `dp_args`
      a payload is refused, since no noise is added to it, unless it `aggregates_payload`.
    - `RoundReport.metrics`: numbers by name; `RoundReport.predictions`: [M, C] by name, scored as `acc_<name>`.
    - Randomness comes from `mrtf_fedml.rng`, by seed and purpose (`torch_generator(self.seed, "mine", client,
      task.round)`), so that every backend gives the same bytes. PyTorch's global random state is seeded in the same
      way inside `train_client` and `server_update`, so dropout is reproducible too.

    Class attributes:
        name: the value of `federated_optimizer`.
        Settings: a dataclass (pydantic's or Python's) with the algorithm's keys, their types and defaults.
        section: the YAML section that holds them; by default `<name>_args`, in lower case.
        transductive: whether `server_update` reads the server's inputs.
        allows_different_models: whether its rules hold where each client trains one of several models.
        keeps_client_state: whether what a client does depends on what it did in earlier rounds.
        allows_momentum: whether `server_update` steps to an average of the clients' models, which predicts too, so that
            `mrtf_args.loss_momentum` may lengthen the step and `average_rounds` average the rounds.
        measures_client_state: whether state that does not fit the broadcast weights loses its influence.
        metrics: labels and units of the numbers in `RoundReport.metrics`; a number without one is shown by its name.

    A complete one: clients report how many classes they have, and the server weights their models by it.

    >>> import torch, dataclasses
    >>> from mrtf_fedml import ClientUpdate, RoundReport, RunSettings
    >>> @dataclasses.dataclass(frozen=True)
    ... class ByClassesSettings:
    ...     power: float = 1.0
    >>> class ByClasses(Algorithm):
    ...     name = "ByClasses"
    ...     Settings = ByClassesSettings
    ...     def train_client(self, model, task):
    ...         update = super().train_client(model, task)
    ...         classes = torch.cat([labels for _, labels in task.data]).unique()
    ...         return dataclasses.replace(update, payload={"classes": len(classes)})
    ...     def aggregate(self, updates):
    ...         counts = [float(update.payload["classes"]) ** self.hparams.power for update in updates]
    ...         return average([update.weights for update in updates], [count / sum(counts) for count in counts])
    ...     def server_update(self, state, updates, aggregated, server):
    ...         after, _ = super().server_update(state, updates, aggregated, server)
    ...         return after, RoundReport({"classes_seen": max(float(u.payload["classes"]) for u in updates)})
    >>> algorithm = ByClasses(RunSettings())
    >>> weights = [{"w": torch.tensor([value])} for value in (0.0, 4.0)]
    >>> updates = [ClientUpdate(k, 10, weights[k], 0.5, {"classes": torch.tensor(k + 1.0)}) for k in (0, 1)]
    >>> state, report = algorithm.server_update(
    ...     algorithm.init_state(weights[0]), updates, algorithm.aggregate(updates), server=None)
    >>> state.weights["w"], report.metrics
    (tensor([2.6667]), {'classes_seen': 2.0})
    """

    name: ClassVar[str] = ""
    Settings: ClassVar[type[Any]] = NoSettings
    section: ClassVar[str] = ""
    transductive: ClassVar[bool] = False
    allows_different_models: ClassVar[bool] = False
    keeps_client_state: ClassVar[bool] = False
    allows_momentum: ClassVar[bool] = False
    measures_client_state: ClassVar[bool] = False
    metrics: ClassVar[tuple[Metric, ...]] = ()

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        if settings.model.models is not None:
            self._check_different_models()
        #: The algorithm's own keys, validated.
        self.hparams: Any = self.resolve_hparams(settings)
        self.seed = settings.common.random_seed
        #: Trains a client's model; an object can be given another function.
        self.local_training: LocalTraining = train_locally

    def _check_different_models(self) -> None:
        if not self.allows_different_models:
            raise UserError(
                f"model_args.models: the clients of {self.name} must have the same model; use federated_optimizer "
                "MrTF, FedDF, FedAvg, FedProx or FedOpt, and base FedAvg, FedProx or FedOpt"
            )
        if self.settings.privacy.has_any_dp or self.settings.clients_only_train:
            raise UserError(
                "model_args.models cannot be used with dp_args, with devices or with a trainer of your own: the server "
                "must know which model a client trained; use model"
            )

    @classmethod
    def section_name(cls) -> str:
        """The YAML section of the algorithm's keys."""
        return cls.section or f"{cls.name.lower()}_args"

    def sections(self) -> dict[str, dict[str, Any]]:
        """The resolved keys that this algorithm reads, by section."""
        return {self.section_name(): to_plain_values(self.hparams)} if dataclasses.fields(self.Settings) else {}

    @classmethod
    def resolve_hparams(cls, settings: RunSettings) -> Any:
        """The algorithm's settings in a run, before the algorithm is built."""
        return settings.algorithm_section(cls.Settings, cls.section_name())

    @property
    def reads_teachers_on_ranks(self) -> bool:
        """Whether the ranks of an MPI simulation predict the server's set with the models that they trained.

        Each rank then holds the server's inputs, so that no other backend allows it.
        """
        return False

    @property
    def aggregates_payload(self) -> bool:
        """Whether the server uses the clients' payloads in place of their weights.

        Under `dp_args` the payload is then clipped and gets the noise, and the weights must be those that were
        broadcast. FedML's attacks, defences and noise, which change weights, are refused.
        """
        return False

    def has_own_client_rule(self) -> bool:
        """Whether its clients do more than FedAvg's, so that a user's own trainer cannot replace them."""
        rules = ("client_payload", "train_client", "local_term")
        return any(getattr(type(self), rule) is not getattr(Algorithm, rule) for rule in rules)

    def init_state(self, weights: Weights) -> ServerState:
        """The state before round 0."""
        return ServerState(round=0, weights=weights, prediction_weights=weights)

    def eligible_clients(self, state: ServerState, available: Sequence[int]) -> Sequence[int]:
        """The clients among which the next round selects, of those available."""
        return available

    def max_payload_bytes(self, weights: Weights) -> int:
        """Bytes of the largest payload, either way, beyond eight times the model's: a larger message is refused."""
        return 0

    def client_payload(self, state: ServerState, client: int) -> Payload:
        """What this client receives in addition to theta_t, by name."""
        return {}

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        """The client's rule: E epochs from theta_t on its own samples. What it returns is what is sent.

        Args:
            model: reusable, on its device; its weights are overwritten.
            task: theta_t, the samples, and what `client_payload` gave.
        """
        weights, loss = self.local_training(
            model,
            task.weights,
            task.data,
            self.settings.train,
            self.seed,
            client=task.client,
            round_index=task.round,
            term=self.local_term(task),
        )
        return ClientUpdate(task.client, task.samples, weights, loss)

    def local_term(self, task: ClientTask) -> LocalTerm | None:
        """What the algorithm adds to the loss or gradients of one client in one round."""
        return None

    def aggregate(self, updates: list[ClientUpdate]) -> Weights:
        """theta_{t+1}: the mean over the selected clients, or weighted by their sample counts."""
        by_samples = self.settings.train.aggregation == "samples"
        counts = [float(update.samples) if by_samples else 1.0 for update in updates]
        if ACTIVE in updates[0].weights:
            return average_by_member([update.weights for update in updates], counts)
        return average([update.weights for update in updates], [count / sum(counts) for count in counts])

    def server_update(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, server: ServerContext
    ) -> tuple[ServerState, RoundReport]:
        """The server's rule after averaging: the average predicts and is broadcast."""
        after = replace(state, round=state.round + 1, weights=aggregated, prediction_weights=aggregated)
        return after, RoundReport()

    def learn_labels(self, state: ServerState, targets: Tensor, server: ServerContext) -> ServerState:
        """After the last round, where the server has labels of some of its samples: the state that predicts.

        By default the model does not learn them.

        Args:
            state: after the last round.
            targets: the probabilities that the model predicts, [M, C]; 1 for the label of a sample that has one.
            server: the server's samples.
        """
        return state

    def evaluation_state(self, state: ServerState, server: ServerContext) -> ServerState | None:
        """The state from which clients get one last task after the rounds: evaluate what predicts, do not train.

        `client_payload` marks such a task, and `train_client` returns the weights that it received. None: no such task.
        """
        return None

    def prediction_logits(self, state: ServerState, server: ServerContext) -> Tensor:
        """Predictions for the server's samples, [M, C]: logits, or logarithms of probabilities.

        By default they are the logits of `prediction_weights`. An algorithm that corrects them keeps what it needs in
        `memory`: a run that was killed after its last round predicts from its state.
        """
        return server.logits(state.prediction_weights)

    def validate_update(self, state: ServerState, update: ClientUpdate) -> str | None:
        """The reason why a client's payload is unusable, so that the client is excluded; None if it is usable.

        A silo may send anything under any name: check the shape and range of what `server_update` reads.
        The caller has checked that the weights fit the model and that all numbers are finite.
        """
        return None

    def skip_round(self, state: ServerState) -> ServerState:
        """The state after a round without a valid update: the model is unchanged."""
        return replace(state, round=state.round + 1)
