"""What has arrived and waits until its party has time for it: bounded in number and, by that of models, in bytes."""

from __future__ import annotations

import queue
import threading
from collections import Counter

from fedml.core.distributed.communication.message import Message

from .protocol import sender_of, weights_in

#: Messages that may wait while a party trains or refines.
_MOST = 1000
#: Models of one sender that may wait. It sends one per round, and a late one may stand before it.
_MODELS_OF_ONE = 3


class Inbox:
    """A queue that no sender can fill with models: each of them is as large as a message may be.

    Args:
        parties: how many may speak.
    """

    def __init__(self, parties: int) -> None:
        # One that Ctrl-C cannot leave locked: a server that is interrupted looks into it once more.
        self._waiting: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._models: Counter[int] = Counter()
        self._most_models = _MODELS_OF_ONE * parties
        self._lock = threading.Lock()

    def put(self, message: Message) -> bool:
        """Whether there was room for it; what finds none is dropped."""
        sender, heavy = sender_of(message), weights_in(message) is not None
        with self._lock:
            # Strangers may give themselves any number of names, so all together are bounded too.
            if heavy and (self._models[sender] >= _MODELS_OF_ONE or self._models.total() >= self._most_models):
                return False
            if self._waiting.qsize() >= _MOST:
                return False
            self._waiting.put(message)
            self._models[sender] += heavy
            return True

    def next(self, seconds: float) -> Message | None:
        """What arrived first, or None after so many seconds."""
        try:
            message = self._waiting.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        with self._lock:
            self._models[sender_of(message)] -= weights_in(message) is not None
            self._models += Counter()
        return message
