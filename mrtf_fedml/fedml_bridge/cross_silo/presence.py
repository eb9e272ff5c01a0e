"""Which silos are there, as the server knows it."""

from __future__ import annotations

import threading


class Presence:
    """The silos that are here, each in one of its incarnations.

    Sends run in threads of their own and may find a silo lost while the main thread hears of it again, so a loss
    counts only for the incarnation that it was observed in. A goodbye is the last word of its incarnation: messages
    that were sent before it and arrive after it bring nobody back.
    """

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids
        self._incarnations: dict[int, str] = {}
        self._left: dict[int, str] = {}
        self._here: set[int] = set()
        self._gone: set[int] = set()
        self._excluded: set[int] = set()
        self._lock = threading.Lock()

    @property
    def here(self) -> frozenset[int]:
        """The clients that can be chosen."""
        with self._lock:
            return frozenset(self._here)

    def id_of(self, client: int) -> int:
        """The id under which the client's silo is reached."""
        return self._ids[client]

    def client_of(self, party: int) -> int | None:
        """The client whose silo has this id; None for a stranger."""
        return self._ids.index(party) if party in self._ids else None

    def incarnation_of(self, client: int) -> str:
        """The incarnation in which the silo was heard last; nothing where it never was."""
        with self._lock:
            return self._incarnations.get(client, "")

    def heard(self, client: int, incarnation: str) -> bool:
        """A sign of life; True where it is of a process that was not known."""
        with self._lock:
            if self._left.get(client) == incarnation:
                return False
            anew = self._incarnations.get(client) != incarnation
            self._incarnations[client] = incarnation
            if client not in self._excluded:
                self._here.add(client)
                self._gone.discard(client)
            return anew

    def lose(self, client: int, incarnation: str) -> None:
        """The silo cannot be reached, or did not answer."""
        with self._lock:
            if self._incarnations.get(client, "") == incarnation:
                self._here.discard(client)
                self._gone.add(client)

    def exclude(self, client: int) -> None:
        """The silo is not chosen again, whatever it says."""
        with self._lock:
            self._excluded.add(client)
            self._here.discard(client)
            self._gone.add(client)

    def leave(self, client: int, incarnation: str) -> None:
        """The silo has said goodbye; one that was started anew since then stays."""
        with self._lock:
            self._left[client] = incarnation
            if self._incarnations.get(client, incarnation) != incarnation:
                return
            self._here.discard(client)
            self._gone.add(client)
            self._incarnations.pop(client, None)

    @property
    def away(self) -> list[int]:
        """The silos that were here, cannot be reached, and have not said goodbye: they may live."""
        with self._lock:
            return sorted(set(self._incarnations) - self._here - self._excluded)

    def expected(self, with_lost: bool) -> list[int]:
        """The clients that are worth a ping: all, or all but those that cannot come back."""
        with self._lock:
            return [client for client in range(len(self._ids)) if with_lost or client not in self._gone]
