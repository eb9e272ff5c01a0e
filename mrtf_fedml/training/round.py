"""One round of federated training: the same functions on every backend and under FedML's own server.

`run_round` selects clients, sends them their tasks through the backend, validates the replies, compares them with each
other, aggregates them and applies the algorithm's server update. `collect_updates`, `validate_replies`,
`screen_replies` and `apply_server_update` are its parts.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from ..algorithms import Algorithm, ClientFailure, ClientUpdate, RoundReport, ServerContext, ServerState
from ..algorithms.evaluation import EvaluationCounts
from ..algorithms.sampling import select_among
from ..algorithms.types import Weights, as_tensors, mean_loss
from ..config import RunSettings
from ..errors import RunStopped
from ..models.group import find_invalid_member, restrict_to_member
from ..models.state_dict import check_state_dict, clone_if_aliased, is_finite, size_in_bytes
from ..rng import fork_rng
from .outliers import find_culprit, screen_updates
from .server import Server

_log = logging.getLogger(__name__)

Reply = ClientUpdate | ClientFailure

#: After the last round, so many clients at most evaluate the model: more would hardly narrow the estimate's interval.
_MAX_EVALUATING_CLIENTS = 200
#: No mean cross-entropy that a model can still learn from is larger.
_MAX_LOSS = 1e6
#: The suffix of BatchNorm's running variance in a state dict.
_RUNNING_VARIANCE = "running_var"


class RoundTasks:
    """What the clients of one round receive: the weights theta_t, and the algorithm's payload for each client.

    Attributes:
        round: t.
        clients: that take part.
        weights: theta_t, the same for all clients.
        is_retry: whether other clients of this round were tried before, and too few of them could be used.
    """

    def __init__(
        self, algorithm: Algorithm, state: ServerState, clients: Sequence[int], is_retry: bool = False
    ) -> None:
        self.round = state.round
        self.clients = list(clients)
        self.weights = state.weights
        self.is_retry = is_retry
        self._algorithm = algorithm
        self._state = state
        memory = [value for value in state.memory.values() if isinstance(value, Tensor)]
        self._server_tensors = [*memory, *state.weights.values(), *state.prediction_weights.values()]
        self._payload_bytes: dict[int, int] = {}

    def payload(self, client: int) -> Weights:
        """What this client receives with theta_t. Made on request, since it may be as large as a model."""
        tensors = as_tensors(self._algorithm.client_payload(self._state, client))
        # In one process a client could write into the server's own tensors.
        payload = clone_if_aliased(tensors, self._server_tensors)
        self._payload_bytes[client] = size_in_bytes(payload)
        return payload

    def validate_update(self, update: ClientUpdate) -> str | None:
        """Why the algorithm cannot use the update; None where it can."""
        try:
            return self._algorithm.validate_update(self._state, update)
        except (ValueError, TypeError, ArithmeticError, LookupError, RuntimeError) as error:
            # The payload comes from another machine: what cannot be validated must not end the server.
            return f"its payload cannot be validated ({type(error).__name__}: {error})"

    @property
    def downlink_bytes(self) -> int:
        """Bytes sent to all clients together."""
        return size_in_bytes(self.weights) * len(self.clients) + sum(self._payload_bytes.values())


class Backend:
    """Moves tasks to the clients and their replies back."""

    def available_clients(self, settings: RunSettings) -> Sequence[int]:
        """The clients that can be selected now; in a simulation all of them."""
        return range(settings.train.client_num_in_total)

    def train_clients(self, tasks: RoundTasks) -> Sequence[Reply]:
        """Have the clients train; their replies, in the order of `tasks.clients`."""
        raise NotImplementedError

    def on_invalid_update(self, client: int, reason: str) -> None:
        """The client's update was excluded as invalid or far too large. A backend may stop selecting such a client."""


class AggregationHooks:
    """FedML's attacks, defences and noise around the aggregation. These hooks change nothing."""

    @property
    def defends(self) -> bool:
        """Whether a defence is enabled that decides on large updates itself."""
        return False

    def before_aggregation(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
        """First: attacks and defences on the clients' models. The refinery's teachers are what is returned."""
        return updates

    def aggregate(self, updates: list[ClientUpdate], rule: Callable[[list[ClientUpdate]], Weights]) -> Weights:
        """Second: the algorithm's own aggregation rule, or a defence in its place."""
        return rule(updates)

    def after_aggregation(self, aggregated: Weights) -> Weights:
        """Third: noise and defences on the aggregated weights."""
        return aggregated


@dataclass(frozen=True)
class RoundReplies:
    """What came back in one round.

    Attributes:
        clients: that were selected.
        updates: the usable ones, in the order of the clients.
        excluded_clients: the other clients, each with the reason.
        missing_clients: those of them from which the backend has no usable reply.
        uplink_bytes: bytes received.
        downlink_bytes: bytes sent.
        client_seconds: from the sending of the tasks to the last reply.
        retries: how often other clients were tried, because too few updates were usable.
        outlier_clients: clients whose updates are much larger than the others', each with the reason. These updates are
            shortened, or left to FedML's defence where one is enabled.
        opposed_clients: clients whose updates point against the others', each with the reason.
    """

    clients: list[int] = field(default_factory=list)
    updates: list[ClientUpdate] = field(default_factory=list)
    excluded_clients: dict[int, str] = field(default_factory=dict)
    missing_clients: frozenset[int] = frozenset()
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    client_seconds: float = 0.0
    retries: int = 0
    outlier_clients: dict[int, str] = field(default_factory=dict)
    opposed_clients: dict[int, str] = field(default_factory=dict)

    def extend(self, more: RoundReplies) -> RoundReplies:
        """These replies and those of one retry. All updates start from the same theta_t."""
        return RoundReplies(
            clients=[*self.clients, *more.clients],
            updates=[*self.updates, *more.updates],
            excluded_clients={**self.excluded_clients, **more.excluded_clients},
            missing_clients=self.missing_clients | more.missing_clients,
            uplink_bytes=self.uplink_bytes + more.uplink_bytes,
            downlink_bytes=self.downlink_bytes + more.downlink_bytes,
            client_seconds=self.client_seconds + more.client_seconds,
            retries=self.retries + 1,
        )

    def exclude_all(self, reason: str) -> RoundReplies:
        """The same round with no usable update."""
        # A defence may merge updates into one of no client (-1).
        unused = {update.client: reason for update in self.updates if update.client >= 0}
        return replace(self, updates=[], excluded_clients={**self.excluded_clients, **unused})


@dataclass(frozen=True)
class RoundRecord:
    """What is known of a finished round. No label is in it."""

    round: int
    replies: RoundReplies
    report: RoundReport
    server_seconds: float

    @property
    def train_loss(self) -> float | None:
        """Mean over the clients that report a loss."""
        return mean_loss(self.replies.updates)


def run_round(
    server: Server, backend: Backend, hooks: AggregationHooks, on_begin: Callable[[Sequence[int]], None]
) -> tuple[ServerState, RoundRecord]:
    """One round: the next state, and a record of the round. The old state and the updates are not written to.

    Args:
        server: the algorithm, its state and its context.
        backend: moves tasks and replies.
        hooks: FedML's attacks, defences and noise.
        on_begin: called with the selected clients before their tasks are sent.
    """
    algorithm, state = server.algorithm, server.state
    replies = collect_updates(algorithm, state, backend, on_begin)
    began = time.perf_counter()
    replies = screen_replies(replies, state, hooks, backend.on_invalid_update)
    updates, next_state, report = _aggregate(server, hooks, replies.updates)
    while report is None and (culprit := find_culprit(state.weights, replies.updates)) is not None:
        # Finite updates can make a model that is not finite: repeat without the one that did it.
        reason = "its update is far larger than the others', and the model made from them was not finite"
        replies = _exclude(replies, {culprit.client: reason}, state.round, backend.on_invalid_update)
        updates, next_state, report = _aggregate(server, hooks, replies.updates)
    replies = replace(replies, updates=updates)
    if report is None:
        replies = replies.exclude_all("the model made from all updates of its round was not finite")
    return next_state, RoundRecord(state.round, replies, report or RoundReport(), time.perf_counter() - began)


def _aggregate(
    server: Server, hooks: AggregationHooks, updates: list[ClientUpdate]
) -> tuple[list[ClientUpdate], ServerState, RoundReport | None]:
    """FedML's hooks around the aggregation, then the server update.

    Returns:
        the updates as the hooks leave them, and what `apply_server_update` returns.
    """
    algorithm, state, aggregated = server.algorithm, server.state, server.state.weights
    if updates:
        updates = hooks.before_aggregation(updates)
        aggregated = hooks.after_aggregation(hooks.aggregate(updates, algorithm.aggregate))
    return updates, *apply_server_update(algorithm, state, updates, aggregated, server.context)


def collect_updates(
    algorithm: Algorithm, state: ServerState, backend: Backend, on_begin: Callable[[Sequence[int]], None]
) -> RoundReplies:
    """Select clients, send their tasks and validate their replies; try other clients while too few are usable.

    The one place that decides what happens with fewer than `train_args.min_clients` usable updates: other clients are
    tried up to `max_retries` times. Then the run stops if clients are missing, since it can be resumed when they are
    back. If all replied, and their updates are unusable, the round keeps the old model.
    """
    train = algorithm.settings.train
    replies: RoundReplies | None = None
    while replies is None or (len(replies.updates) < train.min_clients and replies.retries < train.max_retries):
        available = algorithm.eligible_clients(state, backend.available_clients(algorithm.settings))
        if replies is None:
            clients = select_clients(algorithm.settings, state.round, available)
            if len(clients) < train.min_clients:
                raise RunStopped(
                    f"round {state.round} needs {train.min_clients} clients (train_args.min_clients) and "
                    f"{len(clients)} are connected; start the others"
                )
        else:
            others = select_clients(algorithm.settings, state.round, available, replies.clients)
            clients = others[: train.client_num_per_round - len(replies.updates)]
            if not clients:
                break
            _log.warning(
                "round %d has %d usable updates, fewer than train_args.min_clients (%d); trying %d other clients",
                state.round,
                len(replies.updates),
                train.min_clients,
                len(clients),
            )
        tasks = RoundTasks(algorithm, state, clients, is_retry=replies is not None)
        on_begin(clients)
        began = time.perf_counter()
        received = backend.train_clients(tasks)
        validated = validate_replies(tasks, received, time.perf_counter() - began, backend.on_invalid_update)
        replies = validated if replies is None else replies.extend(validated)
    if len(replies.updates) < train.min_clients:
        reason = f"fewer than train_args.min_clients ({train.min_clients}) updates of its round were usable"
        if replies.missing_clients:
            reasons = "; ".join(f"client {client}: {why}" for client, why in replies.excluded_clients.items())
            raise RunStopped(
                f"{len(replies.updates)} of {len(replies.clients)} clients of round {state.round} sent a usable "
                f"update, fewer than train_args.min_clients ({train.min_clients}) ({reasons})"
            )
        replies = replies.exclude_all(reason)
    return replies


def screen_replies(
    replies: RoundReplies,
    state: ServerState,
    hooks: AggregationHooks,
    on_invalid_update: Callable[[int, str], None] = lambda client, reason: None,
) -> RoundReplies:
    """Compare the updates with each other: what is too large is shortened, what is far too large is excluded.

    Updates that point against the others' are used and reported: an honest client with other data may look the same.
    Where a defence of FedML's is enabled, it gets all updates as they are, and large ones are only reported.

    Args:
        replies: validated, of all attempts of the round.
        state: before the round.
        hooks: FedML's.
        on_invalid_update: called with each excluded client and the reason.
    """
    screening = screen_updates(state.weights, replies.updates)
    replies = replace(replies, opposed_clients=screening.opposed)
    if hooks.defends:
        return replace(replies, outlier_clients={**screening.shortened, **screening.excluded})
    for client, reason in screening.shortened.items():
        _log.warning("client %d of round %d: %s, and is bounded", client, state.round, reason)
    replies = _exclude(replies, screening.excluded, state.round, on_invalid_update)
    return replace(replies, updates=screening.updates, outlier_clients=screening.shortened)


def _exclude(
    replies: RoundReplies, reasons: Mapping[int, str], round_index: int, on_invalid_update: Callable[[int, str], None]
) -> RoundReplies:
    """The replies without the updates of these clients, whose faults are reported."""
    for client, reason in reasons.items():
        _log.warning("client %d is excluded from round %d: %s", client, round_index, reason)
        on_invalid_update(client, reason)
    return replace(
        replies,
        updates=[update for update in replies.updates if update.client not in reasons],
        excluded_clients={**replies.excluded_clients, **reasons},
    )


def collect_evaluations(server: Server, backend: Backend) -> dict[int, EvaluationCounts]:
    """After the last round: have clients evaluate the model that predicts; their counts, by client.

    Empty where the algorithm's clients do not evaluate. A client that does not reply, or replies with impossible
    counts, is missing; nothing is retried.
    """
    algorithm = server.algorithm
    state = algorithm.evaluation_state(server.state, server.context)
    if state is None:
        return {}
    available = backend.available_clients(algorithm.settings)
    clients = select_among(available, (), state.round, _MAX_EVALUATING_CLIENTS, algorithm.seed)
    if not clients:
        return {}
    tasks = RoundTasks(algorithm, state, clients)
    replies = validate_replies(tasks, backend.train_clients(tasks), on_invalid_update=backend.on_invalid_update)
    counts = {each.client: EvaluationCounts.from_payload(each.payload) for each in replies.updates}
    return {client: each for client, each in counts.items() if each is not None}


def select_clients(
    settings: RunSettings, round_index: int, available: Sequence[int], tried: Sequence[int] = ()
) -> list[int]:
    """The clients of a round among those available, drawn by the run's seed; without those already tried in it."""
    per_round, seed = settings.train.client_num_per_round, settings.common.random_seed
    return select_among(available, tried, round_index, per_round, seed)


def validate_replies(
    tasks: RoundTasks,
    replies: Sequence[Reply],
    client_seconds: float = 0.0,
    on_invalid_update: Callable[[int, str], None] = lambda client, reason: None,
) -> RoundReplies:
    """The usable updates, and the reason for every client whose reply is not usable.

    Args:
        tasks: what the clients received.
        replies: one per client.
        client_seconds: how long they took.
        on_invalid_update: called with the client and the reason when the algorithm rejects a payload.
    """
    received = [reply for reply in replies if isinstance(reply, ClientUpdate)]
    missing = {reply.client: reply.reason for reply in replies if isinstance(reply, ClientFailure)}
    usable, excluded = [], dict(missing)
    for update in received:
        reason = find_invalid_number(update) or find_invalid_member(update.weights, tasks.weights)
        if reason is None:
            update = replace(update, weights=restrict_to_member(update.weights, tasks.weights))
            reason = tasks.validate_update(update)
            if reason is not None:
                on_invalid_update(update.client, reason)
        if reason is None:
            usable.append(update)
        else:
            excluded[update.client] = reason
            _log.warning("client %d is excluded from round %d: %s", update.client, tasks.round, reason)
    return RoundReplies(
        clients=tasks.clients,
        updates=usable,
        excluded_clients={client: excluded[client] for client in sorted(excluded)},
        missing_clients=frozenset(missing),
        uplink_bytes=sum(update.bytes for update in received),
        downlink_bytes=tasks.downlink_bytes,
        client_seconds=client_seconds,
    )


def apply_server_update(
    algorithm: Algorithm,
    state: ServerState,
    updates: list[ClientUpdate],
    aggregated: Weights,
    context: ServerContext,
) -> tuple[ServerState, RoundReport | None]:
    """The algorithm's server update. The old model is kept without updates, or if the new one is not finite.

    Returns:
        the next state, and the algorithm's report; None where finite updates have made a model that is not finite.
    """
    if not updates:
        _log.warning("round %d has no usable update; the old model is kept", state.round)
        return algorithm.skip_round(state), RoundReport()
    # Draws from PyTorch's global generator, such as dropout's, depend on the run and the round alone.
    with fork_rng(algorithm.seed, "server rule", state.round):
        next_state, report = algorithm.server_update(state, updates, aggregated, context)
    for name, weights in (("weights", next_state.weights), ("prediction_weights", next_state.prediction_weights)):
        check_state_dict(f"{name} of the state that {algorithm.name}.server_update returns", weights, state.weights)
    if not is_finite(next_state.weights) or not is_finite(next_state.prediction_weights):
        _log.warning("the model after round %d is not finite; the old model is kept", state.round)
        return algorithm.skip_round(state), None
    # The loop counts the rounds, so that no algorithm can repeat one for ever.
    return replace(_clone_aliased(next_state, context), round=state.round + 1), report


def find_invalid_number(update: ClientUpdate) -> str | None:
    """Which number of the update is not finite, or not possible; None where all are."""
    if not is_finite(update.weights):
        return "its weights are not finite (a lower learning_rate may help)"
    for name, value in update.weights.items():
        if name.endswith(_RUNNING_VARIANCE) and bool((value < 0).any()):
            return f"its variance {name} is negative"
    if update.loss is not None and not math.isfinite(update.loss):
        return "its loss is not finite (a lower learning_rate may help)"
    if update.loss is not None and abs(update.loss) > _MAX_LOSS:
        return f"its loss is {update.loss:.3g}, beyond {_MAX_LOSS:g} (a lower learning_rate may help)"
    for name, value in update.payload.items():
        if not is_finite({name: value}):
            return f"its payload {name!r} is not finite"
    return None


def _clone_aliased(state: ServerState, context: ServerContext) -> ServerState:
    """The state with clones of all tensors that belong to the context's model, which is overwritten later."""
    model_tensors = list(context.model.state_dict().values())
    weights = clone_if_aliased(state.weights, model_tensors)
    same = state.prediction_weights is state.weights
    prediction_weights = weights if same else clone_if_aliased(state.prediction_weights, model_tensors)
    tensors = {name: value for name, value in state.memory.items() if isinstance(value, Tensor)}
    memory = {**state.memory, **clone_if_aliased(tensors, model_tensors)}
    return replace(state, weights=weights, prediction_weights=prediction_weights, memory=memory)
