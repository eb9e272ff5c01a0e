"""A round's clients are asked for their updates; where too few of them can be used, others are asked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .norms import far_off
from .round import Arrived, Handout, Reply, sorted_out

if TYPE_CHECKING:
    from .loop import Run

_log = logging.getLogger(__name__)

#: Has the clients of a round trained, wherever that is; their replies, in the order of the clients.
Ask = Callable[[Handout], Sequence[Reply]]
#: The clients of a round, among those that have not been asked in it; nobody where all have.
Choose = Callable[[int, Sequence[int]], list[int]]


def asked(run: Run, ask: Ask, choose: Choose, begun: Handout | None = None) -> Arrived:
    """What the clients of the round at hand sent, and what others sent where fewer than `min_clients` could be used.

    All updates start from the same theta_t, so those of the first clients count beside those of the others. Where
    too few came in the end, none is used. `begun` is what was handed out for this round ahead of it.
    """
    train, state = run.settings.train, run.state
    first = begun or Handout(run.algorithm, state, choose(state.round, []))
    arrived = _asked_once(run, ask, first)
    while len(arrived.updates) < train.min_clients and arrived.retries < train.max_retries:
        missing = train.client_num_per_round - len(arrived.updates)
        others = choose(state.round, arrived.clients)[:missing]
        if not others:
            break
        _log.warning(
            "%d updates of round %d can be used, fewer than train_args.min_clients (%d); %d other clients are asked",
            len(arrived.updates),
            state.round,
            train.min_clients,
            len(others),
        )
        more = Handout(run.algorithm, state, others, again=True)
        arrived = _joined(arrived, _asked_once(run, ask, more))
    if 0 < len(arrived.updates) < train.min_clients:
        arrived = _without_any(arrived, train.min_clients)
    far = far_off(state.weights, arrived.updates)
    for client, reason in far.items():
        _log.warning("client %d of round %d is used, but %s", client, state.round, reason)
    return replace(arrived, far_off=far)


def _asked_once(run: Run, ask: Ask, handout: Handout) -> Arrived:
    run.asking(handout.clients)
    handout.awaited()
    return sorted_out(run.state, handout, ask(handout))


def _joined(first: Arrived, more: Arrived) -> Arrived:
    return Arrived(
        clients=[*first.clients, *more.clients],
        updates=[*first.updates, *more.updates],
        left_out={**first.left_out, **more.left_out},
        bytes_up=first.bytes_up + more.bytes_up,
        bytes_down=first.bytes_down + more.bytes_down,
        seconds_local=first.seconds_local + more.seconds_local,
        retries=first.retries + 1,
    )


def _without_any(arrived: Arrived, least: int) -> Arrived:
    reason = f"too few others of its round could be used, fewer than train_args.min_clients ({least})"
    unused = {update.client: reason for update in arrived.updates}
    return replace(arrived, updates=[], left_out={**arrived.left_out, **unused})
