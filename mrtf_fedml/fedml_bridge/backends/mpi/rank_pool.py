"""The training ranks as the server (rank 0) sees them: which rank trains which client, and what each returns."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor

from ....algorithms import ClientUpdate
from ....errors import RunStopped
from ....training.round import Backend, RoundTasks
from ...messages import MessageTensors, pack_task, unpack_update
from .teacher_logits import detach_logits
from .transport import Channel, Message

_log = logging.getLogger(__name__)

TRAIN, TRAINED, STOP = "train", "trained", "stop"

#: The share of `rank_timeout` after which a slow rank is named in the log.
_WARNING_SHARE = 0.25


class RankPool(Backend):
    """All ranks but the server's. Each rank has at most one client at a time; a free rank gets the next one."""

    def __init__(self, channel: Channel, samples: Mapping[int, int], monitor: RankMonitor) -> None:
        self.channel = channel
        self.samples = samples
        self.monitor = monitor
        #: Of the current round, by client: what it sent, and its model's logits, where the ranks compute them.
        self.predicted: dict[int, tuple[MessageTensors, Tensor]] = {}

    def train_clients(self, tasks: RoundTasks) -> list[ClientUpdate]:
        """The clients' updates, in the order of the clients, whichever rank finishes first."""
        waiting = ClientQueue(tasks.clients, self.samples)
        self.predicted.clear()
        updates: dict[int, ClientUpdate] = {}
        with self._monitor_ranks():
            for rank in range(1, self.channel.ranks):
                self._assign_next(waiting, tasks, rank, first=True)
            while len(updates) < len(tasks.clients):
                message = self.channel.receive()
                self.monitor.mark_finished(message.sender)
                # A rank keeps the weights that came with its first client of the round.
                self._assign_next(waiting, tasks, message.sender, first=False)
                client, (sent, logits) = message.header["client"], detach_logits(message.tensors)
                updates[client] = unpack_update(client, self.samples[client], sent)
                if logits is not None:
                    self.predicted[client] = (sent, logits)
        return [updates[client] for client in tasks.clients]

    def stop(self) -> None:
        """Let all ranks leave their loops."""
        self.channel.send(Message(STOP), range(1, self.channel.ranks))

    def _assign_next(self, waiting: ClientQueue, tasks: RoundTasks, rank: int, first: bool) -> None:
        client = waiting.next_client()
        if client is None:
            return
        self.monitor.mark_started(rank, client, tasks.round)
        tensors = pack_task(tasks.weights if first else {}, tasks.payload(client))
        self.channel.send(Message(TRAIN, {"round": tasks.round, "client": client}, tensors), [rank])

    @contextmanager
    def _monitor_ranks(self) -> Iterator[None]:
        """While the server waits for ranks, it checks that none hangs."""
        self.channel.while_waiting = self.monitor.check
        try:
            yield
        finally:
            self.channel.while_waiting = None


class ClientQueue:
    """A round's clients, largest first, for the rank that is free next.

    FedML's `SeqTrainScheduler` plans a whole round from a line fitted to past running times. It needs rounds of
    history, recurses over all clients, and does not notice that a rank has fallen behind. Which rank trains a client
    does not change the result.

    >>> queue = ClientQueue([4, 7, 9], samples={4: 10, 7: 300, 9: 20})
    >>> queue.next_client(), queue.next_client()
    (7, 9)
    """

    def __init__(self, clients: Iterable[int], samples: Mapping[int, int]) -> None:
        self._waiting = sorted(clients, key=lambda client: (samples[client], -client))

    def next_client(self) -> int | None:
        """The largest client that waits; None when all have been assigned."""
        return self._waiting.pop() if self._waiting else None


class RankMonitor:
    """Which rank trains which client since when. A rank that hangs ends the run with a message.

    Args:
        timeout: seconds that a rank has for one client.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._working: dict[int, tuple[int, int, float]] = {}
        self._warned: set[int] = set()

    def mark_started(self, rank: int, client: int, round_index: int) -> None:
        """Record that the rank was sent this client."""
        self._warned.discard(rank)
        self._working[rank] = (client, round_index, time.monotonic())

    def mark_finished(self, rank: int) -> None:
        """Record that the rank returned its update."""
        self._working.pop(rank, None)

    def check(self) -> None:
        """Warn of a slow rank; raise RunStopped for one that exceeds the timeout."""
        now = time.monotonic()
        for rank, (client, round_index, since) in self._working.items():
            seconds = now - since
            if seconds > self.timeout:
                raise RunStopped(
                    f"rank {rank} returned nothing for client {client} of round {round_index} within "
                    f"{self.timeout:g} s (comm_args.rank_timeout): it hangs, or its host cannot be reached"
                )
            if seconds > self.timeout * _WARNING_SHARE and rank not in self._warned:
                self._warned.add(rank)
                _log.warning(
                    "rank %d has returned nothing for client %d of round %d for %.0f s; the run ends after %g s "
                    "(comm_args.rank_timeout)",
                    rank,
                    client,
                    round_index,
                    seconds,
                    self.timeout,
                )
