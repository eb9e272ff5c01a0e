"""The ranks that train, as the server sees them: who gets which client, and what comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor

from ...algorithms import ClientUpdate
from ...rounds.round import Handout
from ..messages import Payload, start_payload, update_of
from .placement import Placement
from .refinery import without_logits
from .transport import Channel, Parcel
from .watch import RankWatch

TRAIN, TRAINED, STOP = "train", "trained", "stop"


class Trainers:
    """All ranks but the server's.

    While the server listens it hands out one client at a time, to whichever rank is free. While it works nobody
    listens: what is begun then is divided among the ranks beforehand, and each sends when it is heard.
    """

    def __init__(self, channel: Channel, samples: Mapping[int, int], watch: RankWatch) -> None:
        self.channel = channel
        self.samples = samples
        self.watch = watch
        #: Of the round at hand, by client: its payload and its model's logits, where the ranks compute them.
        self.predicted: dict[int, tuple[Payload, Tensor]] = {}
        self._begun: Handout | None = None

    def begin(self, handout: Handout) -> None:
        """Let the ranks train the clients, and do not wait for them."""
        lots = Placement(handout.clients, self.samples).divided(range(1, self.channel.ranks))
        with self._watched():
            for rank, clients in lots.items():
                self.watch.begins(rank, clients, handout.round)
                for place, client in enumerate(clients):
                    self._send(handout, client, rank, first=place == 0, more=place + 1 < len(clients))
        self._begun = handout

    def trained(self, handout: Handout) -> list[ClientUpdate]:
        """The clients' updates, in the order of the clients, whichever rank was done first."""
        if handout is not self._begun:
            self._drop_begun()
        placement = Placement([] if handout is self._begun else handout.clients, self.samples)
        self._begun = None
        self.predicted.clear()
        updates: dict[int, ClientUpdate] = {}
        with self._watched():
            for rank in range(1, self.channel.ranks):
                self._hand_out(placement, handout, rank, first=True)
            while len(updates) < len(handout.clients):
                parcel = self.channel.receive()
                self.watch.answers(parcel.sender)
                # The weights are with the rank since its first client of the round.
                self._hand_out(placement, handout, parcel.sender, first=False)
                client, (payload, logits) = parcel.facts["client"], without_logits(parcel.tensors)
                updates[client] = update_of(client, self.samples[client], payload)
                if logits is not None:
                    self.predicted[client] = (payload, logits)
        return [updates[client] for client in handout.clients]

    def dismiss(self) -> None:
        """Let them go."""
        self._drop_begun()
        self.channel.send(Parcel(STOP), range(1, self.channel.ranks))

    def _drop_begun(self) -> None:
        """Hear what nobody wants any more: a run that was stopped, or clients that were begun in vain."""
        if self._begun is not None:
            with self._watched():
                for _ in self._begun.clients:
                    self.watch.answers(self.channel.receive().sender)
            self._begun = None

    def _hand_out(self, placement: Placement, handout: Handout, rank: int, first: bool) -> None:
        client = placement.next_client()
        if client is not None:
            self.watch.begins(rank, [client], handout.round)
            self._send(handout, client, rank, first)

    def _send(self, handout: Handout, client: int, rank: int, first: bool, more: bool = False) -> None:
        tensors = start_payload(handout.weights if first else {}, handout.extra(client))
        facts = {"round": handout.round, "client": client, "more": more}
        self.channel.send(Parcel(TRAIN, facts, tensors), [rank])

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """While the server waits for them it sees to it that none hangs."""
        self.watch.listens()
        self.channel.meanwhile = self.watch.look
        try:
            yield
        finally:
            self.channel.meanwhile = None
