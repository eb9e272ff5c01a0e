"""The server's connection to its devices: small messages through an MQTT broker, models through an S3 bucket."""

from __future__ import annotations

import json
import logging
import queue
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import boto3
import paho.mqtt.client as mqtt
from boto3.exceptions import Boto3Error
from botocore.client import Config
from botocore.exceptions import BotoCoreError, ClientError

from ....errors import RunStopped, UserError
from . import protocol

_log = logging.getLogger(__name__)

S3_ERRORS = (BotoCoreError, ClientError, Boto3Error)
_BUCKET_KEYS = ("BUCKET_NAME", "CN_S3_AKI", "CN_S3_SAK")
_PAGE_SIZE = 1000
_MAX_PAGES = 100

_AT_LEAST_ONCE, _EXACTLY_ONCE = 1, 2
_BROKER_KEYS = ("BROKER_HOST", "BROKER_PORT", "MQTT_USER", "MQTT_PWD", "MQTT_KEEPALIVE")
#: FedML's messages have a few hundred bytes.
_MAX_MESSAGE_BYTES = 1 << 13
#: Most unread messages (80 MB); more are dropped.
_MAX_MESSAGES = 10_000
_CLOSE_SECONDS = 10.0

#: The topic that stands for a new connection to the broker in the queue of messages.
CONNECTED = ""


class Bucket:
    """The S3 bucket of a run; every failure is one of S3_ERRORS.

    Args:
        config: `comm_args.customized_training_s3_config`.
    """

    def __init__(self, config: Any) -> None:
        if not isinstance(config, Mapping) or any(key not in config for key in _BUCKET_KEYS):
            raise UserError(
                f"backend MQTT_S3_MNN needs comm_args.customized_training_s3_config with {', '.join(_BUCKET_KEYS)}"
            )
        _refuse_tls_keys(config, "customized_training_s3_config")
        self.name = str(config["BUCKET_NAME"])
        self._s3 = boto3.client(
            "s3",
            endpoint_url=config.get("CN_S3_ENDPOINT") or None,
            region_name=config.get("CN_REGION_NAME") or "us-east-1",
            aws_access_key_id=config["CN_S3_AKI"],
            aws_secret_access_key=config["CN_S3_SAK"],
            config=Config(signature_version="s3v4"),
        )

    def put(self, key: str, content: bytes) -> None:
        """Store an object."""
        self._s3.put_object(Bucket=self.name, Key=key, Body=content)

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        """An object's content; at most `max_bytes` + 1 bytes of it."""
        body = self._s3.get_object(Bucket=self.name, Key=key)["Body"]
        try:
            content: bytes = body.read(None if max_bytes is None else max_bytes + 1)
            return content
        finally:
            body.close()

    def remove(self, key: str) -> None:
        """Remove an object, if it exists."""
        self._s3.delete_object(Bucket=self.name, Key=key)

    def list_keys(self, prefix: str) -> list[str]:
        """The first page of the keys with this prefix."""
        listed = self._s3.list_objects_v2(Bucket=self.name, Prefix=prefix, MaxKeys=_PAGE_SIZE)
        return [entry["Key"] for entry in listed.get("Contents", [])]


class DeviceTransport:
    """The server's connection to broker and bucket.

    Args:
        broker: `comm_args.customized_training_mqtt_config`.
        bucket: `comm_args.customized_training_s3_config`.
        topics: of the run.
        devices: ids of the devices.
        start_timeout: seconds for which the connection to the broker is retried.
    """

    def __init__(
        self, broker: Any, bucket: Any, topics: protocol.Topics, devices: Sequence[int], start_timeout: float
    ) -> None:
        self.topics = topics
        self.bucket = Bucket(bucket)
        self._broker = _check_broker(broker)
        self._subscriptions = [(topics.from_device(device), _EXACTLY_ONCE) for device in devices]
        self._subscriptions += [(protocol.STATUS_TOPIC, _EXACTLY_ONCE), (protocol.LAST_WILL_TOPIC, _EXACTLY_ONCE)]
        self._queue: queue.Queue[tuple[str, bytes]] = queue.Queue(_MAX_MESSAGES)
        self._prefix = topics.model_prefix()
        self._check_bucket()
        self._client = self._connect(start_timeout)
        self._client.loop_start()

    def receive(self, seconds: float) -> tuple[str, bytes] | None:
        """Topic and content of the next message, or None if none arrives in `seconds`."""
        try:
            return self._queue.get(timeout=max(0.0, seconds)) if seconds > 0 else self._queue.get_nowait()
        except queue.Empty:
            return None

    def publish(self, topic: str, message: Mapping[str, Any]) -> Any:
        """Publish without waiting; without a connection the message is sent after the next one is made."""
        # Not retained, unlike FedML's: a retained message is for later subscribers, and both sides ignore it.
        # QoS 1, unlike FedML's: mosquitto keeps back messages beyond 20 unfinished ones of QoS 2, and paho 1.6 counts
        # them wrongly when it also receives some. A duplicate does no harm here.
        return self._client.publish(topic, json.dumps(message), qos=_AT_LEAST_ONCE)

    def upload_model(self, round_index: int, model: bytes) -> str:
        """Store theta_t in the bucket in place of the models of earlier rounds; its key."""
        self.remove_models()
        key = f"{self._prefix}global_{round_index}_{uuid.uuid4().hex}"
        try:
            self.bucket.put(key, model)
        except S3_ERRORS as error:
            raise RunStopped(
                f"the model of round {round_index} could not be stored in the S3 bucket {self.bucket.name!r}: {error}"
            ) from error
        return key

    def fetch_model(self, device: int, key: str, max_bytes: int) -> bytes:
        """A device's model, which is then removed from the bucket."""
        if not self._belongs_to(device, key):
            raise protocol.UnreadableMessage("it names a model that is not its own")
        try:
            return self.bucket.get(key, max_bytes)
        except S3_ERRORS as error:
            raise protocol.UnreadableMessage(f"its model is not in the S3 bucket ({error})") from error
        finally:
            self.remove_model(device, key)

    def remove_model(self, device: int, key: str) -> None:
        """Remove a model from the bucket if it is the device's own."""
        if not self._belongs_to(device, key):
            return
        try:
            self.bucket.remove(key)
        except S3_ERRORS as error:
            _log.warning("the model under the key %s remains in the S3 bucket: %s", key, error)

    def remove_models(self) -> None:
        """Remove every model of this run, also those of devices that were lost after their upload."""
        try:
            for _ in range(_MAX_PAGES):
                keys = self.bucket.list_keys(self._prefix)
                for key in keys:
                    self.bucket.remove(key)
                if not keys:
                    return
        except S3_ERRORS as error:
            _log.warning("models remain in the S3 bucket %r: %s", self.bucket.name, error)

    def close(self) -> None:
        """Remove the models and disconnect."""
        self.remove_models()
        # The broker acknowledges this message after all that were published before it.
        last = self.publish(f"{self._prefix}over", {})
        deadline = time.monotonic() + _CLOSE_SECONDS
        while not last.is_published() and time.monotonic() < deadline:
            time.sleep(0.05)
        self._client.disconnect()
        self._client.loop_stop()

    def _belongs_to(self, device: int, key: str) -> bool:
        return key.startswith(self.topics.to_device(device) + "-")

    def _check_bucket(self) -> None:
        try:
            self.bucket.list_keys(self._prefix)
        except S3_ERRORS as error:
            raise RunStopped(
                f"the S3 bucket {self.bucket.name!r} cannot be used: {error}; create it, or correct "
                "comm_args.customized_training_s3_config"
            ) from error

    def _connect(self, seconds: float) -> Any:
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
            _log.error("the MQTT broker rejects the server: %s", mqtt.connack_string(code))
            return
        client.subscribe(self._subscriptions)
        self._put(CONNECTED, b"")

    def _on_message(self, client: Any, _: Any, message: Any) -> None:
        # Retained messages are ignored, as by FedML's server.
        if not message.retain and len(message.payload) <= _MAX_MESSAGE_BYTES:
            self._put(message.topic, message.payload)

    def _put(self, topic: str, payload: bytes) -> None:
        try:
            self._queue.put_nowait((topic, payload))
        except queue.Full:
            _log.warning("too many messages are waiting; one on %s is dropped", topic)


def _check_broker(config: Any) -> dict[str, Any]:
    if not isinstance(config, Mapping) or any(key not in config for key in _BROKER_KEYS):
        raise UserError(
            f"backend MQTT_S3_MNN needs comm_args.customized_training_mqtt_config with the keys "
            f"{', '.join(_BROKER_KEYS)}; add it (empty where there is no user or password)"
        )
    _refuse_tls_keys(config, "customized_training_mqtt_config")
    return dict(config)


def _refuse_tls_keys(config: Mapping[str, Any], section: str) -> None:
    for key in config:
        if str(key).lower().startswith("tls"):
            raise UserError(f"comm_args.{section}.{key} needs backend MQTT_S3; remove it: FedML's app has no such key")
