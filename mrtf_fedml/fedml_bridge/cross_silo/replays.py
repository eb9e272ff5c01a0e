"""Messages that have come before: a network may repeat one, and a stranger may have recorded it."""

from __future__ import annotations

import threading
from collections import OrderedDict

#: So far behind the newest one a message of the same process may come.
_WINDOW = 10_000
#: So many processes are remembered, those longest unheard forgotten first.
_MOST_SPEAKERS = 10_000


class Replays:
    """Knows the numbers that each process of the federation has given its messages.

    >>> heard = Replays()
    >>> heard.is_new("a", 1), heard.is_new("a", 2), heard.is_new("a", 1), heard.is_new("b", 1)
    (True, True, False, True)
    """

    def __init__(self) -> None:
        self._speakers: OrderedDict[str, tuple[int, set[int]]] = OrderedDict()
        self._lock = threading.Lock()

    def is_new(self, speaker: str, number: int) -> bool:
        """Whether this message is the first of its number; from now on it is not."""
        with self._lock:
            newest, seen = self._speakers.pop(speaker, (0, set()))
            new = number not in seen and number > newest - _WINDOW
            if new:
                seen.add(number)
                newest = max(newest, number)
            if len(seen) > 2 * _WINDOW:
                seen = {other for other in seen if other > newest - _WINDOW}
            self._speakers[speaker] = (newest, seen)
            if len(self._speakers) > _MOST_SPEAKERS:
                self._speakers.popitem(last=False)
            return new
