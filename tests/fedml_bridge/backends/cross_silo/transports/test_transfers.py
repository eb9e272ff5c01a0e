"""Link: whole messages over connections that break, in chunks, within a window."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from mrtf_fedml.fedml_bridge.backends.cross_silo.transports import transfers
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.base import Unreachable
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.transfers import CHUNK_BYTES, InvalidFrame, Link
from tests.backends.cross_silo.federation import wait_until

LONG = 20 * CHUNK_BYTES + 123
BEGIN, CHUNK, PROGRESS, ACCEPTED = (int(transfers._Kind[name]) for name in ("BEGIN", "CHUNK", "PROGRESS", "ACCEPTED"))


class Wire:
    """Two links and a connection between them, which a test can break after a number of frames."""

    def __init__(self, max_message_bytes: int = 2**30) -> None:
        self.received: list[bytes] = []
        self.has_room = True
        self.left = Link("left", lambda _: True, max_message_bytes)
        self.right = Link("right", self._take, max_message_bytes)
        #: Every frame from left to right, with the number of the connection.
        self.frames: list[tuple[int, bytes]] = []
        self.connections = 0

    def _take(self, content: bytes) -> bool:
        if self.has_room:
            self.received.append(content)
        return self.has_room

    def connect(self, is_lost: Callable[[bool, bytes], bool] = lambda to_right, frame: False) -> None:
        """A new connection; it breaks at the first frame that is lost."""
        self.connections += 1
        left, right = self.left.connect("right"), self.right.connect("left")
        number = self.connections

        def pump(frames: Iterator[bytes], sink: Link, connection: object, to_right: bool) -> None:
            for frame in frames:
                if is_lost(to_right, frame):
                    self.left.disconnect(left)
                    self.right.disconnect(right)
                    return
                if to_right:
                    self.frames.append((number, frame))
                sink.on_frame(connection, frame)

        for arguments in (
            (self.left.frames(left), self.right, right, True),
            (self.right.frames(right), self.left, left, False),
        ):
            threading.Thread(target=pump, args=arguments, daemon=True).start()


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire()
    yield made
    made.left.close("the test is over")
    made.right.close("the test is over")


def send_in_background(link: Link, content: bytes, timeout: float = 60.0) -> list[object]:
    """The outcome, once there is one."""
    outcome: list[object] = []

    def send() -> None:
        try:
            link.send(content, timeout)
            outcome.append("sent")
        except Unreachable as error:
            outcome.append(error)

    threading.Thread(target=send, daemon=True).start()
    return outcome


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 8 * CHUNK_BYTES, LONG])
def test_message_of_any_size_is_delivered_once_and_unchanged(wire: Wire, size: int) -> None:
    wire.connect()
    content = os.urandom(size)
    wire.left.send(content, 60.0)
    assert wire.received == [content]
    assert max(len(frame) for _, frame in wire.frames) <= CHUNK_BYTES + transfers._HEADER.size


def test_send_waits_for_a_connection(wire: Wire) -> None:
    outcome = send_in_background(wire.left, b"early")
    time.sleep(0.05)
    assert outcome == []
    wire.connect()
    wait_until(lambda: outcome == ["sent"], "the message is sent")


@pytest.mark.parametrize("chunks", [1, 7, 20])
def test_transfer_that_was_cut_off_is_resumed_and_delivered_once(wire: Wire, chunks: int) -> None:
    content = os.urandom(LONG)
    passed = 0

    def breaks(to_right: bool, frame: bytes) -> bool:
        nonlocal passed
        passed += to_right and frame[0] == CHUNK
        return passed > chunks

    outcome = send_in_background(wire.left, content)
    wire.connect(breaks)
    wait_until(lambda: wire.left._connection is None, "the connection is broken")
    assert wire.received == [], "no half of a message is delivered"
    wire.connect()
    wait_until(lambda: outcome == ["sent"], "the message is sent")
    assert wire.received == [content]
    resumed = sum(number == 2 and frame[0] == CHUNK for number, frame in wire.frames)
    assert resumed == 21 - chunks, "bytes that had arrived are not sent again"


def test_transfer_is_repeated_from_the_start_to_a_new_process(wire: Wire) -> None:
    content = os.urandom(LONG)
    outcome = send_in_background(wire.left, content)
    count = iter(range(1000))
    wire.connect(lambda to_right, frame: to_right and next(count) > 9)
    wait_until(lambda: wire.left._connection is None, "the connection is broken")
    wire.right.process = "an earlier one"
    wire.connect()
    wait_until(lambda: outcome == ["sent"], "the message is sent")
    assert wire.received == [content]
    assert sum(number == 2 and frame[0] == CHUNK for number, frame in wire.frames) == 21


@pytest.mark.parametrize("size", [10, LONG])
def test_message_whose_confirmation_was_lost_is_confirmed_again_and_not_delivered_twice(wire: Wire, size: int) -> None:
    outcome = send_in_background(wire.left, bytes(size))
    wire.connect(lambda to_right, frame: not to_right and frame[0] == ACCEPTED)
    wait_until(lambda: wire.left._connection is None, "the connection is broken")
    assert (len(wire.received), outcome) == (1, [])
    wire.connect()
    wait_until(lambda: outcome == ["sent"], "the message is sent")
    assert len(wire.received) == 1
    assert not any(number == 2 and frame[0] == CHUNK for number, frame in wire.frames)


@pytest.mark.parametrize("size", [10, LONG])
def test_sender_retries_while_the_receiver_is_full(wire: Wire, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "_RETRY_SECONDS", 0.02)
    wire.has_room = False
    wire.connect()
    outcome = send_in_background(wire.left, bytes(size))
    wait_until(lambda: sum(frame[0] == BEGIN for _, frame in wire.frames) > 2, "two retries")
    assert outcome == []
    wire.has_room = True
    wait_until(lambda: outcome == ["sent"], "the message is sent")
    assert sum(frame[0] == CHUNK for _, frame in wire.frames) == (21 if size == LONG else 0), "chunks are sent once"


def test_window_bounds_unconfirmed_bytes_and_short_messages_overtake(wire: Wire) -> None:
    """Nobody confirms: at most the window is sent, and a notice and a short message are still written."""
    connection = wire.left.connect("right")
    frames = wire.left.frames(connection)
    send_in_background(wire.left, bytes(LONG))
    begin = next(frames)
    wire.left.on_frame(connection, transfers._HEADER.pack(PROGRESS, begin[1:17], 0))
    chunks = [next(frames) for _ in range(8)]
    assert {frame[0] for frame in chunks} == {CHUNK}
    wire.left.send_notice(b"alive")
    assert next(frames)[-5:] == b"alive"
    send_in_background(wire.left, b"short")
    assert next(frames)[-5:] == b"short"
    late: list[bytes] = []
    threading.Thread(target=lambda: late.extend(frames), daemon=True).start()
    time.sleep(0.1)
    assert late == [], "the window is full"


def test_slow_transfer_with_progress_does_not_time_out(wire: Wire) -> None:
    """Each frame takes 0.2 s, all of them longer than the timeout, which a busy machine does not reach between two."""
    wire.connect(lambda to_right, frame: time.sleep(0.2) is not None)
    began = time.monotonic()
    wire.left.send(bytes(LONG), 3.0)
    assert time.monotonic() - began > 3.0


@pytest.mark.parametrize("size", [10, LONG])
def test_send_without_progress_fails_after_its_timeout(wire: Wire, size: int) -> None:
    with pytest.raises(Unreachable, match=r"left \(no connection for 0.1 s\)"):
        Link("left", lambda _: True, 10).send(bytes(size), 0.1)
    wire.left.connect("right")
    with pytest.raises(Unreachable, match=r"no progress for 0.1 s"):
        wire.left.send(bytes(size), 0.1)


def test_second_long_message_waits_for_the_first(wire: Wire) -> None:
    outcomes = [send_in_background(wire.left, bytes([number]) * LONG) for number in range(3)]
    wire.connect()
    wait_until(lambda: outcomes == [["sent"]] * 3, "all messages are sent")
    assert sorted(content[0] for content in wire.received) == [0, 1, 2]
    assert all(set(content) == {content[0]} for content in wire.received)


def test_message_that_is_too_long_is_refused_before_it_is_sent() -> None:
    wire = Wire(max_message_bytes=LONG - 1)
    wire.connect()
    with pytest.raises(Unreachable, match=f"refuses a message: it has {LONG} bytes"):
        wire.left.send(bytes(LONG), 60.0)
    assert [frame[0] for _, frame in wire.frames] == [BEGIN]


def test_close_writes_waiting_frames_and_fails_sends(wire: Wire) -> None:
    connection = wire.left.connect("right")
    outcome = send_in_background(wire.left, b"unconfirmed")
    wait_until(lambda: wire.left._frames, "the frame waits")
    wire.left.send_notice(b"last")
    wire.left.close("the end")
    written = list(wire.left.frames(connection))
    assert [frame[-4:] for frame in written] == [b"rmed", b"last"]
    wait_until(lambda: outcome, "the send fails")
    assert "the end" in str(outcome[0])
    with pytest.raises(Unreachable):
        wire.left.send_notice(b"later")


def frame(kind: int, number: int, data: bytes = b"", transfer: bytes = b"t" * 16) -> bytes:
    return transfers._HEADER.pack(kind, transfer, number) + data


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"\x01" * 10],
        [frame(99, 0)],
        [frame(0, 0)],
        [frame(BEGIN, 5, b"four")],
        [frame(BEGIN, 4, b"fours")],
        [frame(BEGIN, LONG), frame(CHUNK, 1, b"x")],
        [frame(BEGIN, LONG), frame(CHUNK, 0)],
        [frame(BEGIN, LONG), frame(CHUNK, 0, bytes(LONG + 1))],
        [frame(BEGIN, LONG), frame(CHUNK, 0, b"x"), frame(CHUNK, 0, b"x")],
        [frame(7, 0, bytes(transfers.MAX_FRAME_BYTES))],
        [frame(BEGIN, LONG, transfer=number.to_bytes(16, "big")) for number in range(1000)],
    ],
)
def test_invalid_frames_are_errors_and_deliver_nothing(wire: Wire, frames: list[bytes]) -> None:
    connection = wire.right.connect("left")

    def pass_all() -> None:
        for one in frames:
            wire.right.on_frame(connection, one)

    with pytest.raises(InvalidFrame):
        pass_all()
    assert wire.received == []


@pytest.mark.parametrize("number", [LONG + 1, 2**64 - 1])
def test_confirmation_of_bytes_that_were_not_sent_is_an_error(wire: Wire, number: int) -> None:
    connection = wire.left.connect("right")
    send_in_background(wire.left, bytes(LONG))
    begin = next(wire.left.frames(connection))
    with pytest.raises(InvalidFrame):
        wire.left.on_frame(connection, frame(PROGRESS, number, transfer=begin[1:17]))


def test_frames_of_replaced_connection_and_unknown_transfers_are_ignored(wire: Wire) -> None:
    earlier = wire.right.connect("left")
    connection = wire.right.connect("left")
    wire.right.on_frame(earlier, frame(BEGIN, 5, b"stale"))
    for kind in (PROGRESS, ACCEPTED, CHUNK):
        wire.right.on_frame(connection, frame(kind, 7, b"x"))
    assert wire.received == []
    assert list(wire.right.frames(earlier)) == []
