"""The server's front desk: it invites the devices that are missing, and takes in what all of them say."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from . import protocol
from .attendance import Attendance
from .link import RECONNECTED, DeviceLink

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
#: Seconds between two invitations to a device that has not come.
_INVITE_SECONDS = 5.0


class FrontDesk:
    """Who is there, and what they say.

    Args:
        link: to the devices.
        ids: of the devices, by client.
        server: the server's own id.
        train: what a start message tells of the training.
        data: and of the data.
    """

    def __init__(
        self, link: DeviceLink, ids: Sequence[int], server: int, train: dict[str, Any], data: dict[str, Any]
    ) -> None:
        self.link = link
        self.attendance = Attendance(ids, _INVITE_SECONDS)
        #: Called with a client and its answer; may raise UnreadableMessage.
        self.on_answer: Callable[[int, dict[str, Any]], None] = lambda client, message: None
        #: Called with a client that has come, or come back, and knows of no round.
        self.on_online: Callable[[int], None] = lambda client: None
        self._ids = list(ids)
        self._server = server
        self._start = train, data
        self._by_topic = {link.topics.from_device(device): client for client, device in enumerate(ids)}
        self._finished: set[int] = set()

    def tend(self, seconds: float) -> bool:
        """Invite who is missing, and take in one message, if one comes in so many seconds; whether one came."""
        topics = self.link.topics
        for client in self.attendance.to_be_invited():
            device = self._ids[client]
            self.link.say(topics.start(device), protocol.start(topics.run, topics.server, device, *self._start))
        return self._take_one(seconds)

    def hand_out(self, client: int, kind: int, round_index: int, key: str) -> None:
        """Tell a device where its model lies."""
        device = self._ids[client]
        self._tell(device, protocol.hand_out(kind, self._server, device, round_index, key))

    def say_goodbye(self, seconds: float) -> None:
        """Tell all devices that it is over; those that are here have so many seconds for their last word."""
        here = set(self.attendance.here)
        self._finished = set()
        for device in self._ids:
            self._tell(device, protocol.finish(self._server, device))
        deadline = time.monotonic() + seconds
        while here - self._finished and time.monotonic() < deadline:
            self._take_one(_LOOK_SECONDS)

    def _take_one(self, seconds: float) -> bool:
        arrived = self.link.next(seconds)
        if arrived is None:
            return False
        try:
            self._take(*arrived)
        except protocol.UnreadableMessage as error:
            _log.warning("a message on %s is not FedML's and is dropped: %s", arrived[0], error)
        return True

    def _take(self, topic: str, payload: bytes) -> None:
        if topic == RECONNECTED:
            # Whoever has said something in the meantime is asked to say it again.
            for client in self.attendance.here:
                self._tell(self._ids[client], protocol.check(self._server, self._ids[client]))
            return
        message = protocol.decoded(payload)
        if topic in self._by_topic:
            self._hear(self._by_topic[topic], message)
        elif topic == protocol.LAST_WILL_TOPIC:
            lost = self.attendance.client_of(protocol.whole(message, "ID"))
            if lost is not None and message.get("status") == protocol.OFFLINE:
                self.attendance.away(lost)
        elif topic == protocol.STATUS_TOPIC and message.get("status") == protocol.IDLE:
            new = self.attendance.client_of(protocol.whole(message, "edge_id"))
            if new is not None:
                # It has just connected: whatever it was told before may be lost.
                self.attendance.away(new, at_once=True)

    def _hear(self, client: int, message: dict[str, Any]) -> None:
        if protocol.whole(message, protocol.SENDER) != self._ids[client]:
            raise protocol.UnreadableMessage("its sender is somebody else")
        kind = protocol.whole(message, protocol.TYPE)
        if kind == protocol.ANSWER:
            self.on_answer(client, message)
        elif kind == protocol.STATUS and message.get(protocol.CLIENT_STATUS) == protocol.FINISHED:
            self.attendance.away(client)
            self._finished.add(client)
        elif kind == protocol.STATUS and message.get(protocol.CLIENT_STATUS) == protocol.ONLINE:
            anew = client not in self.attendance.here
            self.attendance.heard(client)
            if anew:
                self.on_online(client)

    def _tell(self, device: int, message: dict[str, Any]) -> None:
        self.link.say(self.link.topics.to_device(device), message)
