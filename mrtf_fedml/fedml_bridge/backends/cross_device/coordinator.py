"""Invites devices, tracks which of them are connected, and dispatches their messages."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..cross_silo.transports.base import Direction, MessageRecord
from . import protocol
from .transport import CONNECTED, DeviceTransport

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
#: Seconds between two invitations of a device that is not connected.
_INVITATION_SECONDS = 5.0


class DeviceMembership:
    """The devices of a run, each in one of three states.

    - connected: it can be selected.
    - unresponsive: it did not reply in time. It may still be training, so it is not invited until it sends a message.
    - offline: it never connected, the broker has lost it, or it was restarted. It is invited repeatedly.

    Args:
        ids: of the devices, by client.
        invitation_seconds: between two invitations of the same device.
    """

    def __init__(self, ids: Sequence[int], invitation_seconds: float) -> None:
        self._ids = list(ids)
        self._clients = {device: client for client, device in enumerate(self._ids)}
        self._invitation_seconds = invitation_seconds
        self._connected: set[int] = set()
        self._unresponsive: set[int] = set()
        self._invited: dict[int, float] = {}
        self._offline_since: dict[int, float] = {}

    @property
    def connected(self) -> list[int]:
        """The clients that can be selected, in ascending order."""
        return sorted(self._connected)

    def id_of(self, client: int) -> int:
        """The id of the client's device."""
        return self._ids[client]

    def client_of(self, device: int) -> int | None:
        """The client whose device has this id; None for an unknown id."""
        return self._clients.get(device)

    def mark_connected(self, client: int) -> None:
        """The device takes part."""
        self._connected.add(client)
        self._unresponsive.discard(client)
        self._offline_since.pop(client, None)

    def mark_alive(self, client: int) -> None:
        """An unusable message has arrived: an unresponsive device is connected again, an offline one stays offline."""
        if client in self._unresponsive:
            self.mark_connected(client)

    def mark_unresponsive(self, client: int) -> None:
        """The device did not reply in time."""
        self._connected.discard(client)
        if client not in self._offline_since:
            self._unresponsive.add(client)

    def mark_offline(self, client: int, invite_now: bool = False) -> None:
        """The device is lost, or was restarted; then it can be invited at once."""
        self._connected.discard(client)
        self._unresponsive.discard(client)
        self._offline_since.setdefault(client, time.monotonic())
        if invite_now:
            self._invited.pop(client, None)

    def seconds_offline(self, client: int) -> float:
        """For how long the broker has lost the device; 0 if it is connected."""
        return time.monotonic() - self._offline_since[client] if client in self._offline_since else 0.0

    def next_invitations(self) -> list[int]:
        """The clients to invite now; they are not returned again for `invitation_seconds`."""
        now = time.monotonic()
        clients = [
            client
            for client in range(len(self._ids))
            if client not in self._connected
            and client not in self._unresponsive
            and now >= self._invited.get(client, -math.inf) + self._invitation_seconds
        ]
        self._invited.update(dict.fromkeys(clients, now))
        return clients


class Coordinator:
    """Exchanges messages with all devices.

    Args:
        transport: to the devices.
        ids: of the devices, by client.
        server: the server's own id.
        train: the training parameters of a start message.
        data: the data parameters of a start message.
    """

    def __init__(
        self, transport: DeviceTransport, ids: Sequence[int], server: int, train: dict[str, Any], data: dict[str, Any]
    ) -> None:
        self.transport = transport
        self.membership = DeviceMembership(ids, _INVITATION_SECONDS)
        #: Called with a client and its update message; may raise UnreadableMessage.
        self.on_update: Callable[[int, dict[str, Any]], None] = lambda client, message: None
        #: Called with a client that has connected and has no task.
        self.on_online: Callable[[int], None] = lambda client: None
        #: Called with every message before it is sent, and with every message of a device.
        self.observers: list[Callable[[MessageRecord], None]] = []
        self._ids = list(ids)
        self._server = server
        self._parameters = train, data
        self._by_topic = {transport.topics.from_device(device): client for client, device in enumerate(ids)}
        self._finished: set[int] = set()

    def process(self, seconds: float) -> bool:
        """Invite offline devices, and handle one message if one arrives in `seconds`; whether one arrived."""
        topics = self.transport.topics
        for client in self.membership.next_invitations():
            device = self._ids[client]
            start = protocol.start_message(topics.run, topics.server, device, *self._parameters)
            self.observe("sent", device, start)
            self.transport.publish(topics.start(device), start)
        return self._handle_next(seconds)

    def send_task(self, client: int, kind: int, round_index: int, key: str, model: bytes, parts: Sequence[str]) -> None:
        """Send a device the key of its model in the bucket.

        Args:
            client: of the device.
            kind: INIT or SYNC.
            round_index: of the task.
            key: of the model.
            model: the content under that key, for the observers.
            parts: the names of its tensors.
        """
        device = self._ids[client]
        message = protocol.task_message(kind, self._server, device, round_index, key)
        self._send(device, message, model, parts)

    def observe(
        self,
        direction: Direction,
        device: int,
        message: Mapping[str, Any],
        model: bytes = b"",
        parts: Sequence[str] = (),
    ) -> None:
        """Pass a message, and the model whose key it has, to the observers."""
        if not self.observers:
            return
        kind = protocol.get_integer(message, protocol.TYPE) if protocol.TYPE in message else None
        name = "invitation" if kind is None else protocol.KINDS.get(kind, "unknown")
        round_index = protocol.get_integer(message, protocol.ROUND) if name in ("task", "update") else None
        payload = json.dumps(message).encode() + model
        record = MessageRecord(direction, device, name, round_index, payload, tuple(parts))
        for observer in self.observers:
            observer(record)

    def finish_devices(self, seconds: float) -> None:
        """Tell all devices that the run has ended; wait up to `seconds` until the connected ones have finished."""
        connected = set(self.membership.connected)
        self._finished = set()
        for device in self._ids:
            self._send(device, protocol.finish_message(self._server, device))
        deadline = time.monotonic() + seconds
        while connected - self._finished and time.monotonic() < deadline:
            self._handle_next(_POLL_SECONDS)

    def _handle_next(self, seconds: float) -> bool:
        received = self.transport.receive(seconds)
        if received is None:
            return False
        try:
            self._handle(*received)
        except protocol.UnreadableMessage as error:
            _log.warning("a message on %s is invalid and is dropped: %s", received[0], error)
        return True

    def _handle(self, topic: str, payload: bytes) -> None:
        if topic == CONNECTED:
            # Messages may have been lost while the server was disconnected, so every device repeats its status.
            for client in self.membership.connected:
                self._send(self._ids[client], protocol.check_message(self._server, self._ids[client]))
            return
        message = protocol.decode(payload)
        if topic in self._by_topic:
            self._handle_device_message(self._by_topic[topic], message)
        elif topic == protocol.LAST_WILL_TOPIC:
            lost = self.membership.client_of(protocol.get_integer(message, "ID"))
            if lost is not None and message.get("status") == protocol.OFFLINE:
                self.membership.mark_offline(lost)
        elif topic == protocol.STATUS_TOPIC and message.get("status") == protocol.IDLE:
            new = self.membership.client_of(protocol.get_integer(message, "edge_id"))
            if new is not None:
                # It has just connected, and may have missed earlier messages.
                self.membership.mark_offline(new, invite_now=True)

    def _handle_device_message(self, client: int, message: dict[str, Any]) -> None:
        if protocol.get_integer(message, protocol.SENDER) != self._ids[client]:
            raise protocol.UnreadableMessage("its sender is another device")
        kind = protocol.get_integer(message, protocol.TYPE)
        if kind == protocol.UPDATE:
            # Observed there, with its model.
            self.on_update(client, message)
            return
        self.observe("received", self._ids[client], message)
        if kind == protocol.STATUS and message.get(protocol.CLIENT_STATUS) == protocol.FINISHED:
            self.membership.mark_offline(client)
            self._finished.add(client)
        elif kind == protocol.STATUS and message.get(protocol.CLIENT_STATUS) == protocol.ONLINE:
            is_new = client not in self.membership.connected
            self.membership.mark_connected(client)
            if is_new:
                self.on_online(client)

    def _send(self, device: int, message: dict[str, Any], model: bytes = b"", parts: Sequence[str] = ()) -> None:
        self.observe("sent", device, message, model, parts)
        self.transport.publish(self.transport.topics.to_device(device), message)
