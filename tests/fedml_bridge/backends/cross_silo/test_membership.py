"""Membership, heartbeat and liveness monitor."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

from mrtf_fedml.fedml_bridge.backends.cross_silo.membership import Heartbeat, LivenessMonitor, Membership


def test_membership_ignores_loss_of_earlier_incarnation() -> None:
    membership = Membership([1, 2])
    assert membership.record_message(0, "first")
    assert not membership.record_message(0, "first")
    assert membership.record_message(0, "second")
    membership.mark_lost(0, "first")
    assert membership.connected == {0}
    membership.mark_lost(0, "second")
    assert membership.connected == frozenset()
    assert membership.heartbeat_targets(include_lost=False) == [1]
    assert membership.heartbeat_targets(include_lost=True) == [0, 1]
    assert (membership.client_of(2), membership.client_of(9)) == (1, None)


def test_membership_ignores_messages_of_disconnected_incarnation() -> None:
    membership = Membership([1, 2])
    membership.record_message(0, "first")
    membership.mark_disconnected(0, "first")
    assert not membership.record_message(0, "first"), "sent before the disconnect, received after it"
    assert (membership.connected, membership.lost) == (frozenset(), [])
    assert membership.record_message(0, "second")
    membership.mark_disconnected(0, "first")
    assert membership.connected == {0}, "the disconnect of the earlier process does not affect the new one"
    membership.mark_disconnected(1, "early")
    assert not membership.record_message(1, "early"), "the disconnect has overtaken the first status"
    assert membership.connected == {0}


def test_heartbeat_sends_until_stopped() -> None:
    sent = threading.Semaphore(0)
    heartbeat = Heartbeat(sent.release, timeout=0.1)
    heartbeat.start()
    assert all(sent.acquire(timeout=60) for _ in range(3))
    heartbeat.stop()


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["terminal", "script"])
def test_liveness_monitor_without_messages_interrupts_main_thread(handler: Any) -> None:
    before = signal.signal(signal.SIGINT, handler), signal.getsignal(signal.SIGUSR2)
    monitor = LivenessMonitor(timeout=0.5)
    started = time.monotonic()
    try:
        monitor.start()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(60)
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGUSR2, before[1])
    assert monitor.expired
    assert time.monotonic() - started < 50, "a sleeping thread is woken"
