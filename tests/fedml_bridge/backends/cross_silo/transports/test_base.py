"""The inbox, the outbox, and calls outside the main thread."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest
import torch

from mrtf_fedml.fedml_bridge.backends.cross_silo import protocol
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.base import Inbox, Outbox, run_in_thread
from tests.fedml_bridge.backends.cross_silo.interruption import is_interrupted


def test_inbox_bounds_models_per_sender_and_in_total() -> None:
    inbox = Inbox(parties=2)
    accepted = [inbox.put(protocol.update_message("x", 1, 0, 1, {"w": torch.zeros(1)})) for _ in range(5)]
    assert accepted == [True] * 3 + [False] * 2
    assert inbox.put(protocol.status_message("x", 1, protocol.ONLINE, {})), "small messages are still accepted"
    unknown = [
        inbox.put(protocol.update_message("y", sender, 0, 1, {"w": torch.zeros(1)})) for sender in range(99, 109)
    ]
    assert sum(unknown) == 3, "other sender ids do not help"
    assert sum(inbox.get(0.0) is not None for _ in range(10)) == 7
    assert inbox.put(protocol.update_message("x", 1, 1, 1, {"w": torch.zeros(1)})), "reading makes room"
    assert sum(inbox.put(protocol.status_message("x", 1, protocol.ONLINE, {})) for _ in range(2000)) == 499
    assert inbox.put(protocol.status_message("z", 2, protocol.ONLINE, {})), "one sender cannot fill the inbox"
    assert sum(inbox.put(protocol.status_message("y", n, protocol.ONLINE, {})) for n in range(99, 2099)) == 499


def test_inbox_drops_duplicates_and_accepts_a_retry_of_a_rejected_message() -> None:
    inbox, new_messages = Inbox(parties=1), []
    inbox.on_new_message = lambda: new_messages.append(1)
    updates = [protocol.update_message("x", 1, 0, 1, {"w": torch.zeros(1)}) for _ in range(4)]
    assert [inbox.put(update) for update in updates] == [True, True, True, False]
    assert inbox.put(updates[0]), "a duplicate is not an error"
    assert len(new_messages) == 4, "a duplicate is not a sign of life"
    assert inbox.get(0.0) is updates[0]
    assert inbox.put(updates[3])
    assert [inbox.get(0.0) for _ in range(4)] == [*updates[1:], None]


def test_inbox_stays_usable_after_ctrl_c_at_any_moment_of_get() -> None:
    inbox, moment = Inbox(parties=1), 1

    def put() -> None:
        inbox.put(protocol.update_message("silo", 1, 0, 10, {"w": torch.zeros(1)}))

    put()
    while is_interrupted(lambda: inbox.get(0.0), moment):
        again = threading.Thread(target=lambda: (put(), inbox.get(0.0)), daemon=True)
        again.start()
        again.join(timeout=30)
        assert not again.is_alive(), f"it was left locked at moment {moment}"
        put()
        moment += 1
    assert moment > 3


def test_outbox_with_unreachable_receiver_delays_no_other_and_bounds_queue_and_threads() -> None:
    release, sent = threading.Event(), []

    def send(message: Any) -> bool:
        if message.get_receiver_id() == 1:
            release.wait(60)
            raise ValueError("the transport is closed")
        sent.append(message.get_receiver_id())
        return True

    outbox, results, threads = Outbox(send), queue.SimpleQueue[bool](), threading.active_count()
    blocked = [outbox.post(protocol.heartbeat_message("x", 1), results.put) for _ in range(100)]
    assert sum(blocked) in (8, 9), "the first may have left the queue"
    assert not outbox.is_idle(1)
    assert outbox.post(protocol.heartbeat_message("x", 2), results.put)
    assert results.get(timeout=60)
    assert sent == [2]
    assert threading.active_count() <= threads + 2
    release.set()
    assert [results.get(timeout=60) for _ in range(sum(blocked))] == [False] * sum(blocked)
    while not outbox.is_idle(1):
        release.wait(0.01)
    assert outbox.post(protocol.heartbeat_message("x", 1)), "its thread has ended, and a new one is started"


def test_run_in_thread_returns_raises_and_times_out() -> None:
    never = threading.Event()
    assert run_in_thread(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        run_in_thread(lambda: 1 // 0)
    with pytest.raises(TimeoutError, match=r"longer than 0\.1 s"):
        run_in_thread(never.wait, seconds=0.1)
    never.set()
