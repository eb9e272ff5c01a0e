"""Who is still there: the server's heartbeat, and the watch that a silo keeps on it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

#: At most so many seconds lie between two beats, and at least so many beats fall in a `silo_timeout`.
_SECONDS = 5.0
_BEATS = 5


def interval_of(timeout: float) -> float:
    """Seconds between two beats.

    >>> interval_of(600.0), interval_of(10.0)
    (5.0, 2.0)
    """
    return min(_SECONDS, timeout / _BEATS)


class Heartbeat:
    """Calls `beat` again and again from a thread of its own: also while the server refines, or waits."""

    def __init__(self, beat: Callable[[], None], timeout: float) -> None:
        self._beat = beat
        self._interval = interval_of(timeout)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """The first beat comes at once."""
        self._thread.start()

    def stop(self) -> None:
        """No beat comes after this returns."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=_SECONDS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._beat()
            self._stopped.wait(self._interval)


class Watch:
    """Ends this process's main thread when nothing has been heard for `timeout` seconds.

    A silo may be deep in its local training when its server dies; so the watch interrupts the main thread, as Ctrl-C
    does, and whoever catches that asks `expired` which of the two it was. It is a real signal, since nothing less wakes
    a thread that waits for the network.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.expired = False
        self._signal: signal.Signals | None = None
        self._heard = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def heard(self) -> None:
        """A sign of life."""
        self._heard = time.monotonic()

    def start(self) -> None:
        """From now on; called from the thread that is to be ended."""
        if threading.current_thread() is threading.main_thread():
            self._signal = signal.SIGINT
            if not callable(signal.getsignal(signal.SIGINT)):
                # A script's background job is started deaf to Ctrl-C.
                self._signal = signal.SIGUSR2
                signal.signal(self._signal, signal.default_int_handler)
        self.heard()
        self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(min(0.5, self.timeout / _BEATS)):
            if time.monotonic() - self._heard > self.timeout:
                self.expired = True
                if self._signal is not None:
                    signal.pthread_kill(threading.main_thread().ident or 0, self._signal)
                return
