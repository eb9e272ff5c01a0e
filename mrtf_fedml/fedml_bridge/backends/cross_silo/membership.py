"""Which silos are connected, and whether the other side is alive."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

#: Longest interval between two heartbeats in seconds, and least number of heartbeats in a `silo_timeout`.
_MAX_INTERVAL = 5.0
_HEARTBEATS_PER_TIMEOUT = 5


class Membership:
    """The connected silos, each with the incarnation of its process.

    A restarted silo has a new incarnation. Sends run in threads and may find a silo lost while the main thread
    receives a message from it, so a loss counts only for the incarnation that it was observed with. A message that
    arrives after its sender has disconnected does not connect it again.

    Args:
        ids: the party id of each silo, by client.
    """

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids
        self._incarnations: dict[int, str] = {}
        self._disconnected: dict[int, str] = {}
        self._connected: set[int] = set()
        self._lost: set[int] = set()
        self._excluded: set[int] = set()
        self._lock = threading.Lock()

    @property
    def connected(self) -> frozenset[int]:
        """The clients that can be selected."""
        with self._lock:
            return frozenset(self._connected)

    @property
    def lost(self) -> list[int]:
        """The clients that were connected, cannot be reached, and have not disconnected: they may be alive."""
        with self._lock:
            return sorted(set(self._incarnations) - self._connected - self._excluded)

    def id_of(self, client: int) -> int:
        """The party id of the client's silo."""
        return self._ids[client]

    def client_of(self, party: int) -> int | None:
        """The client whose silo has this party id; None for an unknown id."""
        return self._ids.index(party) if party in self._ids else None

    def incarnation_of(self, client: int) -> str:
        """The last known incarnation of the silo; empty if there is none."""
        with self._lock:
            return self._incarnations.get(client, "")

    def record_message(self, client: int, incarnation: str) -> bool:
        """Note that the silo is alive; True if its process is new."""
        with self._lock:
            if self._disconnected.get(client) == incarnation:
                return False
            is_new = self._incarnations.get(client) != incarnation
            self._incarnations[client] = incarnation
            if client not in self._excluded:
                self._connected.add(client)
                self._lost.discard(client)
            return is_new

    def mark_lost(self, client: int, incarnation: str) -> None:
        """The silo cannot be reached, or did not reply."""
        with self._lock:
            if self._incarnations.get(client, "") == incarnation:
                self._connected.discard(client)
                self._lost.add(client)

    def mark_disconnected(self, client: int, incarnation: str) -> None:
        """The silo has ended; one that was restarted since then stays connected."""
        with self._lock:
            self._disconnected[client] = incarnation
            if self._incarnations.get(client, incarnation) != incarnation:
                return
            self._connected.discard(client)
            self._lost.add(client)
            self._incarnations.pop(client, None)

    def has_disconnected(self, client: int, incarnation: str) -> bool:
        """Whether this process of the silo has ended; its later messages are ignored."""
        with self._lock:
            return self._disconnected.get(client) == incarnation

    def exclude(self, client: int) -> None:
        """Never select the silo again."""
        with self._lock:
            self._excluded.add(client)
            self._connected.discard(client)
            self._lost.add(client)

    def heartbeat_targets(self, include_lost: bool) -> list[int]:
        """The clients that receive heartbeats: all, or all that have not been lost."""
        with self._lock:
            return [client for client in range(len(self._ids)) if include_lost or client not in self._lost]


def heartbeat_interval(timeout: float) -> float:
    """Seconds between two heartbeats, for a `silo_timeout`.

    >>> heartbeat_interval(600.0), heartbeat_interval(10.0)
    (5.0, 2.0)
    """
    return min(_MAX_INTERVAL, timeout / _HEARTBEATS_PER_TIMEOUT)


class Heartbeat:
    """Calls `send` periodically in a thread, also while the server refines or waits."""

    def __init__(self, send: Callable[[], None], timeout: float) -> None:
        self._send = send
        self._interval = heartbeat_interval(timeout)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin; the first heartbeat is sent at once."""
        self._thread.start()

    def stop(self) -> None:
        """End; no heartbeat is sent after this returns."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=_MAX_INTERVAL)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._send()
            self._stopped.wait(self._interval)


class LivenessMonitor:
    """Interrupts the main thread when no message has arrived for `timeout` seconds.

    A silo may be training when its server dies. The monitor interrupts the main thread as Ctrl-C does, and `expired`
    distinguishes the two. It sends a real signal, because only that wakes a thread that waits for the network.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.expired = False
        self._signal: signal.Signals | None = None
        self._last_message = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="liveness monitor", daemon=True)

    def record_message(self) -> None:
        """Note that the other side is alive."""
        self._last_message = time.monotonic()

    def start(self) -> None:
        """Begin; called from the thread that is to be interrupted."""
        if threading.current_thread() is threading.main_thread():
            self._signal = signal.SIGINT
            if not callable(signal.getsignal(signal.SIGINT)):
                # A shell script starts its background jobs with SIGINT ignored.
                self._signal = signal.SIGUSR2
                signal.signal(self._signal, signal.default_int_handler)
        self.record_message()
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(min(0.5, self.timeout / _HEARTBEATS_PER_TIMEOUT)):
            if time.monotonic() - self._last_message > self.timeout:
                self.expired = True
                if self._signal is not None:
                    signal.pthread_kill(threading.main_thread().ident or 0, self._signal)
                return
