"""One round of a federation, from the clients' replies to the next state: the same function on every backend."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..algorithms import Algorithm, ClientUpdate, NoReply, RoundReport, ServerBench, ServerState
from ..algorithms.exchange import Weights, as_tensors, mean_loss
from ..models.weights import apart, is_finite, refuse_misfit, size_in_bytes
from ..randomness import forked

_log = logging.getLogger(__name__)

Reply = ClientUpdate | NoReply

#: How PyTorch calls what a BatchNorm has measured.
_VARIANCE = "running_var"
#: The report of a round whose result is not finite, though every update was.
_SPOILT = RoundReport()


class Filters:
    """What stands between the clients' replies and the algorithm, in FedML's order; these let everything pass."""

    def local_models(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
        """First: attacks and defences on the clients' models. The refinery's teachers are what is returned."""
        return updates

    def average(self, updates: list[ClientUpdate], own: Callable[[list[ClientUpdate]], Weights]) -> Weights:
        """Second: the algorithm's own average, or a defence in its place."""
        return own(updates)

    def global_model(self, aggregated: Weights) -> Weights:
        """Third: noise and defences on the average."""
        return aggregated


class Handout:
    """What the clients of a round receive: theta_t, and what the algorithm has for each of them alone."""

    def __init__(self, algorithm: Algorithm, state: ServerState, clients: Sequence[int], again: bool = False) -> None:
        self.round = state.round
        #: Whether others were asked before, of whom too few could be used.
        self.again = again
        self.clients = list(clients)
        self.weights = state.weights
        self.began = time.perf_counter()
        # The server's own tensors stay its own: in one process a client might write into them.
        kept = [value for value in state.memory.values() if isinstance(value, Tensor)]
        kept += [*state.weights.values(), *state.answer.values()]
        self._extra_for = lambda client: apart(as_tensors(algorithm.for_client(state, client)), kept)
        self._extra_bytes: dict[int, int] = {}
        #: Why an update cannot be used by this algorithm; None where it can.
        self.unusable = lambda update: algorithm.unusable(state, update)

    def extra(self, client: int) -> Weights:
        """What goes beside theta_t to this client, made when it is asked for: it may be as large as a model."""
        extra = self._extra_for(client)
        self._extra_bytes[client] = size_in_bytes(extra)
        return extra

    @property
    def bytes(self) -> int:
        """What was sent to all clients together."""
        return size_in_bytes(self.weights) * len(self.clients) + sum(self._extra_bytes.values())

    def awaited(self) -> None:
        """From now on the server waits for what comes back: what was done beside other work is not counted twice."""
        self.began = time.perf_counter()

    def gives_the_same_as(self, other: Handout) -> bool:
        """Whether each client receives by both what it receives by one, bit for bit."""
        if self.clients != other.clients or not _equal(self.weights, other.weights):
            return False
        return all(_equal(self.extra(client), other.extra(client)) for client in self.clients)


@dataclass(frozen=True)
class Arrived:
    """A round in progress: what has come back of what was handed out.

    Attributes:
        clients: that were chosen.
        updates: that can be used, in the order of the clients.
        left_out: the other clients, each with the reason.
        bytes_up: what was received.
        bytes_down: what was sent.
        seconds_local: from the handing out to now.
        retries: how often other clients were asked, since too few could be used.
        far_off: clients whose updates are used and look wrong, each with the reason.
    """

    clients: list[int]
    updates: list[ClientUpdate] = field(default_factory=list)
    left_out: dict[int, str] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0
    seconds_local: float = 0.0
    retries: int = 0
    far_off: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RoundRecord:
    """What is told of a finished round."""

    round: int
    arrived: Arrived
    report: RoundReport
    seconds_refine: float

    @property
    def local_loss(self) -> float | None:
        """Mean over the clients that report one."""
        return mean_loss(self.arrived.updates)


def play_round(
    algorithm: Algorithm,
    state: ServerState,
    arrived: Arrived,
    bench: ServerBench,
    filters: Filters,
    begin_next: Callable[[ServerState], None] | None = None,
) -> tuple[ServerState, RoundRecord]:
    """One round, of the updates that can be used: filter, average, filter, and let the algorithm finish.

    Nothing is written into: the updates are the clients', and the old state is whole until the new one is there.
    `begin_next` is told what the next clients start from, where the algorithm knows it before it finishes.
    """
    began = time.perf_counter()
    if arrived.updates:
        arrived = replace(arrived, updates=filters.local_models(arrived.updates))
        aggregated = filters.global_model(filters.average(arrived.updates, algorithm.aggregate))
        if begin_next is not None:
            early = _early_state(algorithm, state, arrived, aggregated, bench)
            if early is not None:
                begin_next(early)
    else:
        aggregated = state.weights
    after, report = finished(algorithm, state, arrived, aggregated, bench)
    if report is _SPOILT:
        reason = "what its round made of all updates together was not finite"
        unused = {update.client: reason for update in arrived.updates if update.client >= 0}
        arrived = replace(arrived, updates=[], left_out={**arrived.left_out, **unused})
    return after, RoundRecord(state.round, arrived, report, time.perf_counter() - began)


def sorted_out(state: ServerState, handout: Handout, replies: Sequence[Reply]) -> Arrived:
    """The replies that can be used, and why the others cannot."""
    seconds = time.perf_counter() - handout.began
    received = [reply for reply in replies if isinstance(reply, ClientUpdate)]
    left_out = {reply.client: reply.reason for reply in replies if isinstance(reply, NoReply)}
    usable = []
    for update in received:
        fault = _fault(update) or handout.unusable(update)
        if fault is None:
            usable.append(update)
            continue
        left_out[update.client] = fault
        _log.warning("client %d is left out of round %d: %s", update.client, state.round, fault)
    by_client = {client: left_out[client] for client in sorted(left_out)}
    bytes_up = sum(update.bytes for update in received)
    return Arrived(handout.clients, usable, by_client, bytes_up, handout.bytes, seconds)


def finished(
    algorithm: Algorithm, state: ServerState, arrived: Arrived, aggregated: Weights, bench: ServerBench
) -> tuple[ServerState, RoundReport]:
    """The algorithm's last word on the round; where nobody's update could be used, the old model stays.

    So it does where numbers that are finite, and far too large, make one that is not: every client after it would fail.
    """
    if not arrived.updates:
        _log.warning("no client of round %d can be used; the old model is kept", state.round)
        return algorithm.skipped_round(state), RoundReport()
    # What a rule draws from PyTorch's global state, as dropout does, belongs to the run and the round.
    with forked(algorithm.seed, "server rule", state.round):
        after, report = algorithm.finish_round(state, arrived.updates, aggregated, bench)
    for what, weights in (("the next start", after.weights), ("the answer", after.answer)):
        refuse_misfit(f"{what} that {algorithm.name}'s finish_round returns", weights, state.weights)
    if not is_finite(after.weights) or not is_finite(after.answer):
        _log.warning("what round %d made of its updates is not finite; the old model is kept", state.round)
        return algorithm.skipped_round(state), _SPOILT
    # The loop counts: a rule that leaves the number as it was would play the same round for ever.
    return replace(_kept_apart(after, bench), round=state.round + 1), report


def _early_state(
    algorithm: Algorithm, state: ServerState, arrived: Arrived, aggregated: Weights, bench: ServerBench
) -> ServerState | None:
    """What the algorithm knows of the next state by now; it draws as it will when it finishes."""
    with forked(algorithm.seed, "server rule", state.round):
        early = algorithm.early_state(state, arrived.updates, aggregated, bench)
    return None if early is None else replace(_kept_apart(early, bench), round=state.round + 1)


def _equal(some: Weights, others: Weights) -> bool:
    return some.keys() == others.keys() and all(torch.equal(value, others[name]) for name, value in some.items())


def _kept_apart(state: ServerState, bench: ServerBench) -> ServerState:
    """The state without tensors of the bench's model, into which the next weights are swapped."""
    lent = list(bench.model.state_dict().values())
    weights = apart(state.weights, lent)
    answer = weights if state.answer is state.weights else apart(state.answer, lent)
    tensors = {name: value for name, value in state.memory.items() if isinstance(value, Tensor)}
    return replace(state, weights=weights, answer=answer, memory={**state.memory, **apart(tensors, lent)})


def _fault(update: ClientUpdate) -> str | None:
    """Why the update cannot be used; None where it can."""
    if not is_finite(update.weights):
        return "its weights are not finite (a lower learning_rate may help)"
    negative = [name for name, value in update.weights.items() if name.endswith(_VARIANCE) and bool((value < 0).any())]
    if negative:
        return f"its {negative[0]} is negative, which no variance is"
    if update.loss is not None and not math.isfinite(update.loss):
        return "its loss is not finite (a lower learning_rate may help)"
    broken = [name for name, value in update.extra.items() if not is_finite({name: value})]
    return f"what it sends beside its weights is not finite ({broken[0]})" if broken else None
