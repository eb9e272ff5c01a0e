"""The server's connection to its devices: small messages through an MQTT broker, models through an S3 bucket."""

from __future__ import annotations

import json
import logging
import queue
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import paho.mqtt.client as mqtt

from ...errors import RunStopped, UserError
from . import protocol
from .bucket import S3_ERRORS, Bucket

_log = logging.getLogger(__name__)

_AT_LEAST_ONCE, _EXACTLY_ONCE = 1, 2
_BROKER_KEYS = ("BROKER_HOST", "BROKER_PORT", "MQTT_USER", "MQTT_PWD", "MQTT_KEEPALIVE")
#: A message of FedML's has a few hundred bytes.
_LONGEST_MESSAGE = 1 << 13
#: More than this many unread messages (80 MB at most) is a flood, and the rest of it is dropped.
_LONGEST_QUEUE = 10_000
_MOST_PAGES = 100
_LEAVE_SECONDS = 10.0

#: What stands in the inbox for a topic when the connection was lost and is there again.
RECONNECTED = ""


class DeviceLink:
    """Topics in, topics out, and the bucket that belongs to them.

    Args:
        broker: FedML's configuration of it.
        bucket: and of the bucket.
        topics: the run's.
        devices: the ids that are listened to.
        start_timeout: seconds for which the broker is looked for.
    """

    def __init__(
        self, broker: Any, bucket: Any, topics: protocol.Topics, devices: Sequence[int], start_timeout: float
    ) -> None:
        self.topics = topics
        self.bucket = Bucket(bucket)
        self._broker = _checked_broker(broker)
        self._subscriptions = [(topics.from_device(device), _EXACTLY_ONCE) for device in devices]
        self._subscriptions += [(protocol.STATUS_TOPIC, _EXACTLY_ONCE), (protocol.LAST_WILL_TOPIC, _EXACTLY_ONCE)]
        self._inbox: queue.Queue[tuple[str, bytes]] = queue.Queue(_LONGEST_QUEUE)
        self._prefix = topics.of_models()
        self._handed_out: str | None = None
        self._check_bucket()
        self._client = self._connected(start_timeout)
        self._client.loop_start()

    def next(self, seconds: float) -> tuple[str, bytes] | None:
        """Topic and content of what arrived first, or None after so many seconds."""
        try:
            return self._inbox.get(timeout=max(0.0, seconds)) if seconds > 0 else self._inbox.get_nowait()
        except queue.Empty:
            return None

    def say(self, topic: str, message: Mapping[str, Any]) -> Any:
        """Publish without waiting; while the broker is away the message waits for it."""
        # Not retained, unlike FedML's: a retained message is for those who come later, and both sides ignore it.
        # And QoS 1, unlike FedML's: mosquitto keeps back for good what a client sends beyond 20 unfinished messages of
        # QoS 2, and paho 1.6 loses count of them when it also receives some. Twice the same does no harm here.
        return self._client.publish(topic, json.dumps(message), qos=_AT_LEAST_ONCE)

    def lay_out(self, round_index: int, model: bytes) -> str:
        """Put theta_t into the bucket, and clear away what earlier rounds have left there; its key."""
        self.clear()
        self._handed_out = f"{self._prefix}global_{round_index}_{uuid.uuid4().hex}"
        try:
            self.bucket.put(self._handed_out, model)
        except S3_ERRORS as error:
            raise RunStopped(
                f"the model of round {round_index} could not be put into the S3 bucket {self.bucket.name!r}: {error}"
            ) from error
        return self._handed_out

    def fetch(self, device: int, key: str, at_most: int) -> bytes:
        """A device's model, which is then gone from the bucket."""
        if not self._is_of(device, key):
            raise protocol.UnreadableMessage("it names a model that is not its own")
        try:
            return self.bucket.get(key, at_most)
        except S3_ERRORS as error:
            raise protocol.UnreadableMessage(f"its model is not in the S3 bucket ({error})") from error
        finally:
            self.drop(device, key)

    def drop(self, device: int, key: str) -> None:
        """Remove a device's model from the bucket, and nobody else's."""
        if self._is_of(device, key):
            self._remove(key)

    def clear(self) -> None:
        """Remove every model of this run: those of devices too that were lost between their upload and their word."""
        try:
            for _ in range(_MOST_PAGES):
                keys = self.bucket.keys(self._prefix)
                for key in keys:
                    self.bucket.remove(key)
                if not keys:
                    return
        except S3_ERRORS as error:
            _log.warning("models stay in the S3 bucket %r: %s", self.bucket.name, error)

    def close(self) -> None:
        """Leave broker and bucket as they were found."""
        self.clear()
        # An empty last word: it is acknowledged after all that was said before it.
        farewell = self.say(f"{self._prefix}over", {})
        deadline = time.monotonic() + _LEAVE_SECONDS
        while not farewell.is_published() and time.monotonic() < deadline:
            time.sleep(0.05)
        self._client.disconnect()
        self._client.loop_stop()

    def _is_of(self, device: int, key: str) -> bool:
        return key.startswith(self.topics.to_device(device) + "-")

    def _remove(self, key: str) -> None:
        try:
            self.bucket.remove(key)
        except S3_ERRORS as error:
            _log.warning("a model stays in the S3 bucket under %s: %s", key, error)

    def _check_bucket(self) -> None:
        try:
            self.bucket.keys(self._prefix)
        except S3_ERRORS as error:
            raise RunStopped(
                f"the S3 bucket {self.bucket.name!r} cannot be used: {error}; make it, or correct "
                "comm_args.customized_training_s3_config"
            ) from error

    def _connected(self, seconds: float) -> Any:
        client = mqtt.Client(client_id=f"FedML_CS_{self.topics.run}_{self.topics.server}_{uuid.uuid4().hex}")
        client.username_pw_set(str(self._broker["MQTT_USER"] or ""), str(self._broker["MQTT_PWD"] or ""))
        will = json.dumps({"ID": self.topics.server, "status": protocol.OFFLINE})
        client.will_set(protocol.SERVER_LAST_WILL_TOPIC, will, qos=_EXACTLY_ONCE)
        client.reconnect_delay_set(min_delay=1, max_delay=5)
        client.on_connect = self._on_connect
        client.on_message = self._on_message
        host, port = str(self._broker["BROKER_HOST"]), int(self._broker["BROKER_PORT"])
        deadline = time.monotonic() + seconds
        while True:
            try:
                client.connect(host, port, int(self._broker["MQTT_KEEPALIVE"]))
                return client
            except OSError as error:
                if time.monotonic() > deadline:
                    raise RunStopped(
                        f"the MQTT broker at {host}:{port} could not be reached for {seconds:g} s "
                        f"(comm_args.start_timeout): {error}; start it, or correct the address"
                    ) from None
            time.sleep(1.0)

    def _on_connect(self, client: Any, _: Any, flags: Any, code: int) -> None:
        if code != 0:
            _log.error("the MQTT broker refuses the server: %s", mqtt.connack_string(code))
            return
        client.subscribe(self._subscriptions)
        self._put(RECONNECTED, b"")

    def _on_message(self, client: Any, _: Any, message: Any) -> None:
        # Like FedML's server: what the broker kept for those who come later is nothing to act on.
        if not message.retain and len(message.payload) <= _LONGEST_MESSAGE:
            self._put(message.topic, message.payload)

    def _put(self, topic: str, payload: bytes) -> None:
        try:
            self._inbox.put_nowait((topic, payload))
        except queue.Full:
            _log.warning("messages arrive faster than they are read; one on %s is dropped", topic)


def _checked_broker(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping) or any(key not in given for key in _BROKER_KEYS):
        raise UserError(
            f"backend MQTT_S3_MNN needs comm_args.customized_training_mqtt_config with the keys "
            f"{', '.join(_BROKER_KEYS)}; give it (empty where there is no user or password)"
        )
    return dict(given)
