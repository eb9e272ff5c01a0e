"""The interface of all transports, and the one queue between a transport and its party.

A transport's receiving threads decode what arrives and put it into the `Inbox`. The party's main thread takes it out
with `Transport.receive`. Sends are bounded in time.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from fedml.core.distributed.communication.message import Message
from torch import Tensor

from .....errors import RunStopped
from ..protocol import KINDS, InvalidPayload, get_incarnation, get_round, get_sender, get_sequence_number, get_weights
from .codec import WEIGHTS, UnreadableMessage, encode, read_names

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")
Direction = Literal["sent", "failed", "received"]

#: Most messages that wait in an inbox.
_MAX_MESSAGES = 1000
#: Most messages of one sender that wait in an inbox, so that one sender cannot fill it. A silo that trains for 40
#: minutes has 500 heartbeats waiting.
_MAX_MESSAGES_PER_SENDER = 500
#: Most messages that wait in an outbox for one receiver.
_MAX_OUTGOING = 8
#: Most models of one sender that wait in an inbox. A silo sends one per round; a late one may still be queued.
_MAX_MODELS_PER_SENDER = 3
#: A message may arrive this many sequence numbers after a later one of the same process.
_SEQUENCE_WINDOW = 10_000
#: Most processes whose sequence numbers are remembered; the ones silent for the longest time are forgotten first.
_MAX_PROCESSES = 10_000


class Unreachable(ConnectionError):
    """A message could not be delivered to its receiver in time."""


@dataclass(frozen=True)
class PartyAddress:
    """A party's identity in the federation, and the parties it can reach.

    Attributes:
        rank: 0 is the server, r is the silo that owns shard r-1.
        own_id: the sender id of its messages: its rank, unless FedML's platform has assigned another.
        ranks: the rank of every party by its id, this party included.
        silos: number of silos in the federation.
        send_timeout: seconds for which a send is retried.
        max_message_bytes: size of the largest message that is accepted.
        is_check: whether it only asks the server what differs; it must not take the place of a running silo.
    """

    rank: int
    own_id: int
    ranks: Mapping[int, int]
    silos: int
    send_timeout: float
    max_message_bytes: int = 2**31 - 1
    is_check: bool = False


@dataclass(frozen=True)
class MessageRecord:
    """A message as an observer sees it. Sender and receiver of a message see the same payload on every transport.

    Attributes:
        direction: `sent` before the first attempt to send it, so that it may have been lost; `failed` if it could not
            be delivered in time; `received` after its duplicates have been dropped and before it is handled.
        peer: the id of the other party, as the message names it.
        kind: `task`, `update`, `status`, `heartbeat` or `finish`; with devices also `invitation` and `check`; `unknown`
            for a message of another type.
        round: the round index, for tasks and updates.
        payload: the message as `codec.encode` encodes it; with devices its JSON, followed by the model.
        parts: the names of the tensors in the message.
    """

    direction: Direction
    peer: int
    kind: str
    round: int | None
    payload: bytes
    parts: tuple[str, ...]


class Inbox:
    """A bounded queue of messages, each delivered once.

    Args:
        parties: number of parties that may send.
    """

    def __init__(self, parties: int) -> None:
        # Ctrl-C in the main thread cannot leave a SimpleQueue locked, and the server reads it once more afterwards.
        self._queue: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._messages: Counter[int] = Counter()
        self._models: Counter[int] = Counter()
        self._max_models = _MAX_MODELS_PER_SENDER * parties
        self._seen = SequenceNumbers()
        self._lock = threading.Lock()
        #: Called for every new message, in the receiving thread, also when there is no room for it.
        self.on_new_message: Callable[[], None] | None = None

    def put(self, message: Message) -> bool:
        """Queue a message; False if the inbox is full. A duplicate, or a message without a number, is dropped."""
        incarnation, number = get_incarnation(message), get_sequence_number(message)
        sender, has_weights = get_sender(message), get_weights(message) is not None
        with self._lock:
            if number < 0 or not incarnation or not self._seen.is_new(incarnation, number):
                _log.info("a message was dropped: it is a duplicate or has no sequence number")
                return True
            if self.on_new_message is not None:
                self.on_new_message()
            # The total is bounded too, since a hostile sender may use any number of sender ids.
            if has_weights and (
                self._models[sender] >= _MAX_MODELS_PER_SENDER or self._models.total() >= self._max_models
            ):
                return False
            if self._queue.qsize() >= _MAX_MESSAGES or self._messages[sender] >= _MAX_MESSAGES_PER_SENDER:
                return False
            self._seen.add(incarnation, number)
            self._queue.put(message)
            self._messages[sender] += 1
            self._models[sender] += has_weights
            return True

    def get(self, seconds: float) -> Message | None:
        """The oldest message, or None if none arrives in `seconds`."""
        try:
            message = self._queue.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        with self._lock:
            sender = get_sender(message)
            self._messages[sender] -= 1
            self._models[sender] -= get_weights(message) is not None
            # Senders without messages are forgotten.
            self._messages += Counter()
            self._models += Counter()
        return message


class Outbox:
    """Sends messages in the background: at most one thread and a short queue per receiver.

    A receiver that does not respond delays neither the caller nor the other receivers.

    Args:
        send: sends a message; False if its receiver cannot be reached.
    """

    def __init__(self, send: Callable[[Message], bool]) -> None:
        self._send = send
        self._waiting: dict[int, deque[tuple[Message, Callable[[bool], None] | None]]] = {}
        self._lock = threading.Lock()

    def is_idle(self, receiver: int) -> bool:
        """Whether nothing is being sent to this receiver."""
        with self._lock:
            return receiver not in self._waiting

    def post(self, message: Message, on_sent: Callable[[bool], None] | None = None) -> bool:
        """Send the message after those that wait for the same receiver; False if too many wait.

        Args:
            message: to send.
            on_sent: called in the sending thread, with whether the message was sent.
        """
        receiver = int(message.get_receiver_id())
        with self._lock:
            is_new = receiver not in self._waiting
            waiting = self._waiting.setdefault(receiver, deque())
            if len(waiting) >= _MAX_OUTGOING:
                return False
            waiting.append((message, on_sent))
        if is_new:
            threading.Thread(target=self._run, args=(receiver,), name=f"sends to {receiver}", daemon=True).start()
        return True

    def _run(self, receiver: int) -> None:
        while True:
            with self._lock:
                if not self._waiting[receiver]:
                    del self._waiting[receiver]
                    return
                message, on_sent = self._waiting[receiver].popleft()
            try:
                is_sent = self._send(message)
            except Exception as error:
                # The transport was closed meanwhile. The thread must survive: later messages wait for it.
                _log.info("a message to %d was not sent (%s: %s)", receiver, type(error).__name__, error)
                is_sent = False
            if on_sent is not None:
                on_sent(is_sent)


class SequenceNumbers:
    """The sequence numbers of the messages received from each process, to detect duplicates.

    A network may deliver a message twice, and an attacker may replay a recorded one.

    >>> seen = SequenceNumbers()
    >>> seen.add("a", 1)
    >>> seen.is_new("a", 1), seen.is_new("a", 2), seen.is_new("b", 1)
    (False, True, True)
    """

    def __init__(self) -> None:
        self._processes: OrderedDict[str, tuple[int, set[int]]] = OrderedDict()

    def is_new(self, incarnation: str, number: int) -> bool:
        """Whether no message of this number has been added for the process."""
        newest, numbers = self._processes.get(incarnation, (0, set()))
        return number not in numbers and number > newest - _SEQUENCE_WINDOW

    def add(self, incarnation: str, number: int) -> None:
        """Remember a message."""
        newest, numbers = self._processes.pop(incarnation, (0, set()))
        numbers.add(number)
        newest = max(newest, number)
        if len(numbers) > 2 * _SEQUENCE_WINDOW:
            numbers = {other for other in numbers if other > newest - _SEQUENCE_WINDOW}
        self._processes[incarnation] = (newest, numbers)
        if len(self._processes) > _MAX_PROCESSES:
            self._processes.popitem(last=False)


class Transport(ABC):
    """One party's connection to the others: `send`, `receive`, `close` and `peers`."""

    #: Whether a silo that was restarted can join again.
    supports_rejoin: ClassVar[bool] = True

    def __init__(self, address: PartyAddress) -> None:
        self.address = address
        self.inbox = Inbox(address.silos + 1)
        #: Why there is no connection to the server, as far as this silo knows; empty while there is one.
        self.problem = ""
        #: Why the server does not accept this silo, which then ends: trying again does not help.
        self.rejection: str | None = None
        #: Called with every message that is sent or received, in the thread that sends or receives it.
        self.observers: list[Callable[[MessageRecord], None]] = []

    @property
    def peers(self) -> list[int]:
        """The ids of the parties that this one can send to."""
        return [party for party in self.address.ranks if party != self.address.own_id]

    def send(self, message: Message) -> None:
        """Deliver the message to its receiver.

        Raises:
            Unreachable: it could not be delivered within `send_timeout`.
        """
        self._observe("sent", message)
        try:
            run_in_thread(lambda: self._send(message))
        except Unreachable:
            self._observe("failed", message)
            raise

    def send_nowait(self, message: Message) -> None:
        """Send a small message without waiting; it may be lost."""
        self._observe("sent", message)
        try:
            run_in_thread(lambda: self._send_nowait(message))
        except Unreachable as error:
            _log.debug("a message was lost: %s", error)

    def receive(self, seconds: float) -> Message | None:
        """The next message, or None if none arrives in `seconds`.

        Raises:
            RunStopped: the server has rejected this silo.
        """
        deadline = time.monotonic() + seconds
        while (message := self.inbox.get(deadline - time.monotonic())) is not None:
            try:
                resolved = self._resolve(message)
            except UnreadableMessage as error:
                # Its weights are gone. The party that waits for it has a timeout.
                _log.warning("a received message was dropped: %s", error)
            else:
                self._observe("received", resolved)
                return resolved
        if self.rejection is not None:
            raise RunStopped(f"the server does not accept silo {self.address.rank}: {self.rejection}")
        return None

    def pack(self, weights: Mapping[str, Tensor]) -> Any:
        """The weights as they are transmitted, made once for all receivers of the same weights."""
        return run_in_thread(lambda: self._pack(weights))

    def release_packed(self) -> None:
        """Free what `pack` has made."""
        run_in_thread(self._release_packed)

    def seconds_disconnected(self, party: int) -> float:
        """For how long there has been no connection to a peer; 0 if there is one, or if nobody can know."""
        return 0.0

    def drop_revoked(self) -> list[int]:
        """Disconnect the peers whose certificates were revoked; the ids of those that were connected."""
        return []

    @abstractmethod
    def close(self, graceful: bool = False) -> None:
        """Disconnect. `graceful`: the federation has ended normally, and all parties disconnect together."""

    def deliver(self, decode: Callable[[], Message]) -> bool:
        """Decode a message that has arrived and queue it; False if the inbox is full.

        The transport calls this from its receiving threads. Bytes that cannot be decoded are logged and dropped: a
        hostile sender must not end a receiving thread.
        """
        try:
            return self.inbox.put(decode())
        except UnreadableMessage as error:
            _log.warning("a received message was dropped: %s", error)
            return True
        except Exception as error:
            _log.warning("a received message was dropped (%s: %s)", type(error).__name__, str(error)[:200])
            return True

    def deliver_or_drop(self, decode: Callable[[], Message]) -> None:
        """`deliver`, for a transport that cannot tell the sender to retry."""
        if not self.deliver(decode):
            _log.warning("a received message was dropped: too many messages are waiting")

    def _observe(self, direction: Direction, message: Message) -> None:
        if not self.observers:
            return
        record = _make_record(direction, message)
        for observer in self.observers:
            observer(record)

    @abstractmethod
    def _send(self, message: Message) -> None:
        """`send`, never called from the main thread."""

    def _send_nowait(self, message: Message) -> None:
        """`send_nowait`, never called from the main thread."""
        self._send(message)

    def _pack(self, weights: Mapping[str, Tensor]) -> Any:
        """`pack`, never called from the main thread."""
        return weights

    def _release_packed(self) -> None:  # noqa: B027
        """`release_packed`, never called from the main thread."""

    def _resolve(self, message: Message) -> Message:
        """The complete message, where only a part of it was queued."""
        return message


def _make_record(direction: Direction, message: Message) -> MessageRecord:
    kind, weights = message.get_type(), get_weights(message)
    parts: list[str] = []
    if isinstance(weights, Mapping) and all(isinstance(value, Tensor) for value in weights.values()):
        parts = list(weights)
    elif isinstance(weights, bytes):
        parts = read_names(weights)
    else:
        # A received message without readable weights.
        weights = None
    try:
        round_index = get_round(message)
    except InvalidPayload:
        round_index = None
    return MessageRecord(
        direction,
        get_sender(message) if direction == "received" else int(message.get_receiver_id()),
        KINDS.get(kind, "unknown") if isinstance(kind, int | str) else "unknown",
        round_index,
        encode({**message.get_params(), WEIGHTS: weights}),
        tuple(parts),
    )


def run_in_thread(call: Callable[[], _Result], seconds: float | None = None) -> _Result:
    """Call a function outside the main thread and return its result, or raise its exception.

    Ctrl-C raises in the main thread at any place, also where gRPC or an MQTT client has just taken a lock, and would
    leave that lock held. No message could be sent after that. So the main thread only waits, and another thread makes
    the call. The call continues if the wait for it is interrupted.

    Raises:
        TimeoutError: the call takes longer than `seconds`.

    >>> run_in_thread(lambda: 6 * 7)
    42
    """
    if seconds is None and threading.current_thread() is not threading.main_thread():
        return call()
    # The locks of a SimpleQueue are not Python objects, unlike those of an Event, a Future or a queue.Queue.
    outcome: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((call(), None))
        except BaseException as error:
            outcome.put((None, error))

    threading.Thread(target=run, name="transport call", daemon=True).start()
    try:
        result, error = outcome.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"the call has taken longer than {seconds:g} s") from None
    if error is not None:
        raise error
    return result
