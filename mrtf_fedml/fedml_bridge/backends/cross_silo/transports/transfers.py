"""Whole messages over a connection that may break.

A `Link` joins two parties across any number of successive connections. A message longer than one chunk is announced
first; the receiver replies how many bytes of it it has, and the sender continues there. So a transfer that was cut off
is resumed, and a message is delivered when all of its bytes have arrived, or not at all. At most `_WINDOW_BYTES` are
under way without a confirmation, so short messages never wait for long behind a model.

A frame is a kind, the id of its transfer, a number, and data:

| kind | number | data |
|---|---|---|
| BEGIN | size of the message | the message, if it is at most one chunk long |
| CHUNK | offset of the data | a part of the message |
| PROGRESS | bytes received so far | |
| ACCEPTED | | |
| FULL | | (too many messages wait; the sender retries) |
| REFUSED | | the reason |
| NOTICE | | a message that is not confirmed and may be lost |
"""

from __future__ import annotations

import itertools
import os
import struct
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from .base import Unreachable
from .codec import MAX_HEADER_BYTES

CHUNK_BYTES = 2**16
#: Most bytes of a message that are sent and not confirmed: four seconds at 1 Mbit/s.
_WINDOW_BYTES = 8 * CHUNK_BYTES
_HEADER = struct.Struct("!B16sQ")
#: Most bytes of a frame; a NOTICE may have a header of full length.
MAX_FRAME_BYTES = _HEADER.size + MAX_HEADER_BYTES + CHUNK_BYTES
#: Most frames that wait to be written. A peer that sends without reading fills it and is disconnected.
_MAX_FRAMES = 256
#: Most notices that wait to be written.
_MAX_NOTICES = 32
#: Completed transfers that are remembered, in case the connection broke before their confirmation arrived.
_MAX_COMPLETED = 64
_RETRY_SECONDS = 0.5
_MAX_REASON = 200


class InvalidFrame(ValueError):
    """Bytes that violate the protocol; the connection is closed."""


class _Kind(IntEnum):
    BEGIN = 1
    CHUNK = 2
    PROGRESS = 3
    ACCEPTED = 4
    FULL = 5
    REFUSED = 6
    NOTICE = 7


@dataclass
class _Outgoing:
    """A message that is being sent.

    Attributes:
        timeout: seconds without progress after which it fails.
        deadline: when it fails unless there is progress; monotonic seconds.
        confirmed: bytes that the receiver has.
        written: bytes that were written to this connection; None until the receiver says where to continue.
        retry_at: when to begin again after FULL.
        refusal: the reason of the receiver; empty if it has accepted the message; None until it has replied.
    """

    transfer: bytes
    content: bytes
    timeout: float
    deadline: float = 0.0
    confirmed: int = 0
    written: int | None = None
    retry_at: float | None = None
    refusal: str | None = None

    @property
    def is_long(self) -> bool:
        """Whether it is sent in chunks."""
        return len(self.content) > CHUNK_BYTES

    def extend_deadline(self) -> None:
        """There is progress."""
        self.deadline = time.monotonic() + self.timeout


@dataclass
class _Incoming:
    """A long message that is being received."""

    transfer: bytes
    size: int
    received: bytearray = field(default_factory=bytearray)

    @property
    def is_complete(self) -> bool:
        """Whether all bytes have arrived."""
        return len(self.received) == self.size


class Link:
    """The transfers to and from one peer.

    One thread writes what `frames` yields to the current connection, another passes what it reads to `on_frame`.
    Neither is the main thread, and `send` is not called from it.

    Args:
        peer: its name in error messages.
        deliver: takes a complete message; False if there is no room for it.
        max_message_bytes: longest message that is accepted.
    """

    def __init__(self, peer: str, deliver: Callable[[bytes], bool], max_message_bytes: int) -> None:
        self._peer = peer
        self._deliver = deliver
        self._max_message_bytes = max_message_bytes
        self._condition = threading.Condition()
        self._connection: object | None = None
        self._disconnected_at = time.monotonic()
        #: Identifies the process of the peer.
        self.process = ""
        self._closed_reason: str | None = None
        self._frames: deque[bytes] = deque()
        self._outgoing: OrderedDict[bytes, _Outgoing] = OrderedDict()
        self._incoming: _Incoming | None = None
        self._completed: OrderedDict[bytes, None] = OrderedDict()
        self._prefix, self._numbers = os.urandom(8), itertools.count()

    def connect(self, process: str) -> object:
        """Use a new connection in place of the current one, to this process of the peer; the connection's token."""
        connection = object()
        with self._condition:
            if process != self.process:
                self.process, self._incoming = process, None
                self._completed.clear()
            self._connection = connection
            self._frames.clear()
            for outgoing in self._outgoing.values():
                self._begin(outgoing)
            self._condition.notify_all()
        return connection

    def disconnect(self, connection: object) -> None:
        """The connection is broken."""
        with self._condition:
            if self._connection is connection:
                self._connection = None
                self._disconnected_at = time.monotonic()
                self._condition.notify_all()

    @property
    def seconds_disconnected(self) -> float:
        """For how long there has been no connection; 0 if there is one."""
        with self._condition:
            return 0.0 if self._connection is not None else time.monotonic() - self._disconnected_at

    def close(self, reason: str) -> None:
        """End the connection when all waiting frames are written; every send fails from now on."""
        with self._condition:
            if self._closed_reason is None:
                self._closed_reason = reason
            self._condition.notify_all()

    def send(self, content: bytes, timeout: float) -> None:
        """Send a message and wait until the peer has accepted it.

        Raises:
            Unreachable: there was no progress for `timeout` seconds, or the peer refuses the message.
        """
        outgoing = _Outgoing(self._new_id(), content, timeout)
        with self._condition:
            self._outgoing[outgoing.transfer] = outgoing
            outgoing.extend_deadline()
            self._begin(outgoing)
            try:
                self._wait_for_reply(outgoing)
            finally:
                del self._outgoing[outgoing.transfer]
                following = self._current_long() if outgoing.is_long else None
                if following is not None:
                    following.extend_deadline()
                    self._begin(following)
                    self._condition.notify_all()
        if outgoing.refusal:
            raise Unreachable(f"{self._peer} (it refuses a message: {outgoing.refusal})")

    def send_notice(self, content: bytes) -> None:
        """Send a message without confirmation.

        Raises:
            Unreachable: there is no connection, or too much waits.
        """
        with self._condition:
            if self._connection is None or self._closed_reason is not None or len(self._frames) >= _MAX_NOTICES:
                raise Unreachable(f"{self._peer} (no connection, or a slow one)")
            self._put(_Kind.NOTICE, self._new_id(), 0, content)

    def frames(self, connection: object) -> Iterator[bytes]:
        """What is to be written to a connection, until it is broken, replaced or closed."""
        while True:
            with self._condition:
                while True:
                    if self._connection is not connection:
                        return
                    frame = self._next_frame()
                    if frame is not None:
                        break
                    if self._closed_reason is not None:
                        return
                    self._condition.wait()
            yield frame

    def on_frame(self, connection: object, frame: bytes) -> None:
        """Handle a frame that was read from a connection.

        Raises:
            InvalidFrame: it violates the protocol.
        """
        if not _HEADER.size <= len(frame) <= MAX_FRAME_BYTES:
            raise InvalidFrame(f"a frame has {len(frame)} bytes")
        code, transfer, number = _HEADER.unpack_from(frame)
        data = frame[_HEADER.size :]
        try:
            kind = _Kind(code)
        except ValueError:
            raise InvalidFrame(f"a frame is of the unknown kind {code}") from None
        if kind is _Kind.NOTICE:
            self._deliver(data)
            return
        with self._condition:
            if self._connection is not connection:
                return
            if kind is _Kind.BEGIN:
                message = self._on_begin(transfer, number, data)
            elif kind is _Kind.CHUNK:
                message = self._on_chunk(transfer, number, data)
            else:
                message = None
                self._on_reply(kind, transfer, number, data)
        if message is not None:
            # Without the lock: decoding a model takes a while.
            is_accepted = self._deliver(message)
            with self._condition:
                self._on_delivered(connection, transfer, is_accepted)

    def _on_begin(self, transfer: bytes, size: int, data: bytes) -> bytes | None:
        """The message, if it is complete."""
        if transfer in self._completed:
            self._put(_Kind.ACCEPTED, transfer)
            return None
        if size > self._max_message_bytes:
            reason = f"it has {size} bytes, and at most {self._max_message_bytes} are accepted"
            self._put(_Kind.REFUSED, transfer, 0, reason.encode())
            return None
        if size <= CHUNK_BYTES:
            if len(data) != size:
                raise InvalidFrame(f"a message of {size} bytes begins with {len(data)}")
            return data
        if self._incoming is None or self._incoming.transfer != transfer:
            self._incoming = _Incoming(transfer, size)
        if self._incoming.is_complete:
            # There was no room for it.
            return bytes(self._incoming.received)
        self._put(_Kind.PROGRESS, transfer, len(self._incoming.received))
        return None

    def _on_chunk(self, transfer: bytes, offset: int, data: bytes) -> bytes | None:
        """The message, if it is complete."""
        incoming = self._incoming
        if incoming is None or incoming.transfer != transfer:
            # The sender has given up this transfer and begun another one.
            return None
        if offset != len(incoming.received) or not data or offset + len(data) > incoming.size:
            raise InvalidFrame(f"{len(data)} bytes at {offset} do not continue a message of {incoming.size} bytes")
        incoming.received += data
        if incoming.is_complete:
            return bytes(incoming.received)
        self._put(_Kind.PROGRESS, transfer, len(incoming.received))
        return None

    def _on_delivered(self, connection: object, transfer: bytes, is_accepted: bool) -> None:
        if is_accepted:
            self._completed[transfer] = None
            if len(self._completed) > _MAX_COMPLETED:
                self._completed.popitem(last=False)
            if self._incoming is not None and self._incoming.transfer == transfer:
                self._incoming = None
        if self._connection is connection:
            self._put(_Kind.ACCEPTED if is_accepted else _Kind.FULL, transfer)

    def _on_reply(self, kind: _Kind, transfer: bytes, number: int, data: bytes) -> None:
        outgoing = self._outgoing.get(transfer)
        if outgoing is None:
            return
        if kind is _Kind.PROGRESS:
            limits = (0, len(outgoing.content)) if outgoing.written is None else (outgoing.confirmed, outgoing.written)
            if not outgoing.is_long or not limits[0] <= number <= limits[1]:
                raise InvalidFrame(f"{number} bytes are confirmed of a message of {len(outgoing.content)}")
            if outgoing.written is None:
                outgoing.written = number
            if number > outgoing.confirmed:
                outgoing.extend_deadline()
            outgoing.confirmed = number
        elif kind is _Kind.FULL:
            outgoing.retry_at = time.monotonic() + _RETRY_SECONDS
        else:
            reason = data[:_MAX_REASON].decode(errors="replace")
            outgoing.refusal = "" if kind is _Kind.ACCEPTED else ascii(reason or "no reason")[1:-1]
        self._condition.notify_all()

    def _wait_for_reply(self, outgoing: _Outgoing) -> None:
        while outgoing.refusal is None:
            now = time.monotonic()
            if self._closed_reason is not None:
                raise Unreachable(f"{self._peer} ({self._closed_reason})")
            if outgoing.is_long and self._current_long() is not outgoing:
                # It waits for another message, which has a deadline.
                self._condition.wait()
                continue
            if now >= outgoing.deadline:
                state = "no connection" if self._connection is None else "no progress"
                raise Unreachable(f"{self._peer} ({state} for {outgoing.timeout:g} s)")
            if outgoing.retry_at is not None and now >= outgoing.retry_at:
                self._begin(outgoing)
            until = outgoing.deadline if outgoing.retry_at is None else min(outgoing.deadline, outgoing.retry_at)
            self._condition.wait(max(0.0, until - now))

    def _current_long(self) -> _Outgoing | None:
        """The long message that is being sent; one at a time, since the receiver keeps one unfinished message."""
        return next((outgoing for outgoing in self._outgoing.values() if outgoing.is_long), None)

    def _begin(self, outgoing: _Outgoing) -> None:
        """Announce a message on the current connection, if there is one and it is the message's turn."""
        outgoing.written = outgoing.retry_at = None
        if self._connection is None or (outgoing.is_long and self._current_long() is not outgoing):
            return
        data = b"" if outgoing.is_long else outgoing.content
        self._put(_Kind.BEGIN, outgoing.transfer, len(outgoing.content), data)

    def _next_frame(self) -> bytes | None:
        if self._frames:
            return self._frames.popleft()
        outgoing = self._current_long()
        if outgoing is None or outgoing.written is None:
            return None
        offset = outgoing.written
        if offset >= len(outgoing.content) or offset - outgoing.confirmed >= _WINDOW_BYTES:
            return None
        data = outgoing.content[offset : offset + CHUNK_BYTES]
        outgoing.written += len(data)
        return _HEADER.pack(_Kind.CHUNK, outgoing.transfer, offset) + data

    def _put(self, kind: _Kind, transfer: bytes, number: int = 0, data: bytes = b"") -> None:
        if len(self._frames) >= _MAX_FRAMES:
            raise InvalidFrame(f"{len(self._frames)} frames wait to be read")
        self._frames.append(_HEADER.pack(kind, transfer, number) + data)
        self._condition.notify_all()

    def _new_id(self) -> bytes:
        return self._prefix + next(self._numbers).to_bytes(8, "big")
