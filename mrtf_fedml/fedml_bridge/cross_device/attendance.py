"""Which devices are there, as the server knows it."""

from __future__ import annotations

import time
from collections.abc import Sequence


class Attendance:
    """The devices of a run, each here, silent, or away.

    - here: it has said so, and can be chosen.
    - silent: it did not answer in time. It may still be training: it is left alone until it is heard of again.
    - away: it never came, the broker has lost it, or it was started anew. It is invited again and again.
    """

    def __init__(self, ids: Sequence[int], invite_seconds: float) -> None:
        self._ids = list(ids)
        self._clients = {device: client for client, device in enumerate(self._ids)}
        self._invite_seconds = invite_seconds
        self._here: set[int] = set()
        self._silent: set[int] = set()
        self._invited: dict[int, float] = {}
        self._away_since: dict[int, float] = {}

    @property
    def here(self) -> list[int]:
        """The clients that can be chosen, in order."""
        return sorted(self._here)

    def id_of(self, client: int) -> int:
        """The id of the client's device."""
        return self._ids[client]

    def client_of(self, device: int) -> int | None:
        """The client whose device has this id; None for a stranger."""
        return self._clients.get(device)

    def heard(self, client: int) -> None:
        """It lives, and takes part."""
        self._here.add(client)
        self._silent.discard(client)
        self._away_since.pop(client, None)

    def woke(self, client: int) -> None:
        """Something that is of no use came from it: if it was silent, it lives; if it is away, that proves nothing."""
        if client in self._silent:
            self.heard(client)

    def late(self, client: int) -> None:
        """It gave no answer in time."""
        self._here.discard(client)
        if client not in self._away_since:
            self._silent.add(client)

    def away(self, client: int, at_once: bool = False) -> None:
        """It is gone, or was started anew: then it can be invited at once."""
        self._here.discard(client)
        self._silent.discard(client)
        self._away_since.setdefault(client, time.monotonic())
        if at_once:
            self._invited.pop(client, None)

    def seconds_away(self, client: int) -> float:
        """For how long the broker has missed it; 0 where it is connected."""
        return time.monotonic() - self._away_since[client] if client in self._away_since else 0.0

    def to_be_invited(self) -> list[int]:
        """Those to whom a start message should go now; they are not named again for a while."""
        now = time.monotonic()
        waiting = [
            client
            for client in range(len(self._ids))
            if client not in self._here
            and client not in self._silent
            and now >= self._invited.get(client, now - self._invite_seconds) + self._invite_seconds
        ]
        self._invited.update(dict.fromkeys(waiting, now))
        return waiting
