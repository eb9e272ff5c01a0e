"""What the four ways of moving messages have in common.

FedML's communication managers hand a message on from a loop that keeps a core busy, and block the caller for as long
as it takes. Here each delivers from one thread that sleeps until something comes, and a send is bounded.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedml.core.distributed.communication.base_com_manager import BaseCommunicationManager
from fedml.core.distributed.communication.message import Message
from fedml.core.distributed.communication.observer import Observer
from torch import Tensor

from .apart import apart
from .codec import UnreadableMessage

_log = logging.getLogger(__name__)


#: Messages that may wait to be read; a party that is flooded with more does not hear them.
MOST_UNREAD = 1000


class Unreachable(ConnectionError):
    """A message could not be brought to its receiver in time."""


@dataclass(frozen=True)
class PartyAddress:
    """Where a party stands in the federation, and whom it reaches from there.

    Attributes:
        rank: 0 is the server, r the silo that owns shard r-1.
        own_id: the name under which it sends; its rank, unless FedML's platform has given it another.
        ranks: the rank of every party that it speaks to, by that party's id; its own among them.
        silos: how many silos the federation has.
        patience: seconds for which a send is tried again.
        longest: bytes of the largest message that is taken in.
    """

    rank: int
    own_id: int
    ranks: Mapping[int, int]
    silos: int
    patience: float
    longest: int = 2**31 - 1


class SiloBackend(BaseCommunicationManager):
    """One end of the federation's communication."""

    #: Whether a silo that was started anew can be taken in again.
    takes_back: ClassVar[bool] = True

    def __init__(self) -> None:
        self.observers: list[Observer] = []
        #: Whether the federation has come to its end with everybody in it.
        self.ended_well = False
        #: What has arrived, as the backend brings it; None ends the delivery.
        self.arrived: queue.Queue[Any] = queue.Queue()
        self._delivery = threading.Thread(target=self._deliver, name="silo delivery", daemon=True)

    def add_observer(self, observer: Observer) -> None:
        """Who receives the messages."""
        self.observers.append(observer)

    def remove_observer(self, observer: Observer) -> None:
        """Who receives no more."""
        self.observers.remove(observer)

    def handle_receive_message(self) -> None:
        """Begin to deliver, and return."""
        self._delivery.start()

    def stop_receive_message(self) -> None:
        """Deliver no more."""
        self.arrived.put(None)
        if self._delivery.is_alive():
            self._delivery.join(timeout=5)

    def pack(self, weights: Mapping[str, Tensor]) -> Any:
        """The weights in the form in which they travel, made once for all that receive the same."""
        return apart(lambda: self._pack(weights))

    def forget_packed(self) -> None:
        """What `pack` made is needed no more."""
        apart(self._forget_packed)

    def send_message(self, msg: Message) -> None:
        """Bring the message to its receiver, or raise `Unreachable`."""
        apart(lambda: self._send(msg))

    def ping(self, msg: Message) -> None:
        """Send a small message without waiting, and without minding if it is lost."""
        try:
            apart(lambda: self._ping(msg))
        except Unreachable as error:
            _log.debug("a ping was lost: %s", error)

    def _pack(self, weights: Mapping[str, Tensor]) -> Any:
        """What `pack` does, never called from the main thread."""
        return weights

    def _forget_packed(self) -> None:
        """What `forget_packed` does, never called from the main thread."""

    def _send(self, msg: Message) -> None:
        """What `send_message` does, never called from the main thread."""
        raise Unreachable(f"{type(self).__name__} cannot send")

    def _ping(self, msg: Message) -> None:
        """What `ping` does, never called from the main thread."""
        self._send(msg)

    def read(self, raw: Any) -> Message:
        """The message behind what arrived."""
        return raw

    def _deliver(self) -> None:
        while (raw := self.arrived.get()) is not None:
            # A stranger may send anything: whatever it does to us must not end this thread, which all others need.
            try:
                message = self.read(raw)
                for observer in self.observers:
                    observer.receive_message(message.get_type(), message)
            except (UnreadableMessage, OSError) as error:
                # Not ours, or its weights are gone: whoever waits for it has a timeout.
                _log.warning("a message that arrived was dropped: %s", error)
            except Exception as error:
                _log.warning("a message that arrived was dropped (%s: %s)", type(error).__name__, str(error)[:200])
