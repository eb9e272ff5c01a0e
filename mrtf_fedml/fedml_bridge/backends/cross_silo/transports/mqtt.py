"""MQTT_S3: messages through an MQTT broker, weights through an S3 bucket; no party needs an open port.

FedML's topics and its configuration, with optional TLS, sends that wait for the broker's acknowledgement, no
unpickling, one upload per round for all silos, and no presigned URL of a model in a message.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import ssl
import time
import uuid
from collections.abc import Mapping
from typing import Any

import boto3
import paho.mqtt.client as mqtt
from boto3.exceptions import Boto3Error
from botocore.client import Config
from botocore.exceptions import BotoCoreError, ClientError
from fedml.core.distributed.communication.message import Message
from fedml.core.distributed.communication.mqtt.mqtt_manager import MqttManager
from fedml.core.distributed.communication.mqtt_s3.mqtt_s3_multi_clients_comm_manager import (
    MqttS3MultiClientsCommManager,
)
from torch import Tensor

from .....config import SiloSettings
from .....errors import RunStopped, UserError
from .base import PartyAddress, Transport, Unreachable, run_in_thread
from .codec import (
    MAX_HEADER_BYTES,
    WEIGHTS,
    UnreadableMessage,
    decode_weights_or_error,
    encode_weights,
    make_message,
)
from .tls import SYSTEM_AUTHORITIES, TlsFiles

_log = logging.getLogger(__name__)

_BROKER_KEYS = ("BROKER_HOST", "BROKER_PORT", "MQTT_USER", "MQTT_PWD", "MQTT_KEEPALIVE")
_BUCKET_KEYS = ("BUCKET_NAME", "CN_S3_AKI", "CN_S3_SAK")
#: The last part of an upload's key.
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_S3_ERRORS = (BotoCoreError, ClientError, Boto3Error)
#: After so many connections that the broker closes at once, there is no point in trying again.
_MAX_CLOSED = 3


class Upload(bytes):
    """A block of weights, with its key in the bucket."""

    key: str


class _TlsClient(mqtt.Client):
    """paho's client, whose network thread ends for good at an error of TLS; here it reconnects."""

    def _sock_recv(self, bufsize: int) -> Any:
        try:
            return super()._sock_recv(bufsize)
        except ssl.SSLError as error:
            raise ConnectionError(str(error)) from error

    def _sock_send(self, buf: Any) -> Any:
        try:
            return super()._sock_send(buf)
        except ssl.SSLError as error:
            raise ConnectionError(str(error)) from error


class _Manager(MqttManager):
    """FedML's MQTT client without its destructor, which raises where TLS has failed; `close` disconnects it."""

    def __del__(self) -> None:
        """Nothing is left to do."""


class _FedmlConnection(MqttS3MultiClientsCommManager):
    """FedML's connection to the broker."""

    def __init__(
        self,
        transport: MqttTransport,
        broker: Any,
        bucket: Any,
        args: Any,
        address: PartyAddress,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._transport = transport
        self._tls = tls
        super().__init__(
            broker,
            bucket,
            topic=str(args.run_id),
            client_rank=address.rank,
            client_num=len(address.ranks) - 1,
            args=args,
        )

    @property
    def mqtt_mgr(self) -> Any:
        """FedML's MQTT client."""
        return self._manager

    @mqtt_mgr.setter
    def mqtt_mgr(self, manager: Any) -> None:
        # FedML's constructor creates its client and connects it in two steps; it has no TLS.
        self._manager = manager
        manager.__class__ = _Manager
        if self._tls is not None:
            manager._client.__class__ = _TlsClient
            manager._client.tls_set_context(self._tls)

    def _on_message(self, msg: Any) -> None:
        # The weights are fetched later: the network thread must not wait for S3, or the broker drops the connection.
        self._transport.deliver_or_drop(lambda: self._transport.decode(msg.topic, msg.payload))


class MqttTransport(Transport):
    """A party's connection over MQTT and S3."""

    def __init__(self, args: Any, address: PartyAddress, settings: SiloSettings, broker: Any, bucket: Any) -> None:
        super().__init__(address)
        broker = _check_keys(broker, "customized_training_mqtt_config", _BROKER_KEYS)
        bucket = _check_keys(bucket, "customized_training_s3_config", _BUCKET_KEYS)
        args.client_id_list = json.dumps([party for party, rank in address.ranks.items() if rank > 0])
        self._bucket = bucket["BUCKET_NAME"]
        self._s3 = _make_s3_client(bucket)
        deadline = time.monotonic() + settings.start_timeout
        self._fedml = self._connect(broker, bucket, args, settings.start_timeout)
        self._client = self._fedml.mqtt_mgr._client
        self._packed: list[Upload] = []
        try:
            self._wait_until_accepted(broker, deadline)
        except BaseException:
            self._disconnect()
            raise

    def decode(self, topic: str, payload: bytes) -> Message:
        """The message; its weights are still a key of the bucket."""
        if len(payload) > MAX_HEADER_BYTES:
            raise UnreadableMessage(f"a message on our topic has {len(payload)} bytes")
        try:
            params = json.loads(payload)
            sender = str(params.get(Message.MSG_ARG_KEY_SENDER))
        except (ValueError, AttributeError, RecursionError) as error:
            raise UnreadableMessage("a message on our topic is not a JSON object") from error
        if self.address.rank == 0 and topic != f"{self._fedml.topic}{sender}":
            # A broker can restrict each silo to its own topic, so the topic identifies the sender.
            raise UnreadableMessage(f"a message on {topic[:60]!r} has the sender {sender[:20]!r}")
        return make_message(params)

    def close(self, graceful: bool = False) -> None:
        """Disconnect from the broker, so that it does not publish the last will."""
        if self.address.rank == 0:
            self.release_packed()
        self._disconnect()

    def _disconnect(self) -> None:
        # With TLS a broken connection raises here.
        with contextlib.suppress(OSError):
            self._client.disconnect()
        self._client.loop_stop()

    def _pack(self, weights: Mapping[str, Tensor]) -> Upload:
        """Upload the weights."""
        self._packed.append(self._upload(weights))
        return self._packed[-1]

    def _release_packed(self) -> None:
        """Remove the weights of the previous round from the bucket."""
        while self._packed:
            self._remove(self._packed.pop().key)

    def _resolve(self, message: Message) -> Message:
        """Fetch the message's weights from the bucket."""
        key = message.get(WEIGHTS)
        if key is not None:
            sender = str(message.get_sender_id())
            message.add_params(WEIGHTS, run_in_thread(lambda: self._fetch_weights(sender, key)))
        return message

    def _fetch_weights(self, sender: str, key: Any) -> Any:
        """Download weights that their sender has uploaded; the server removes them then."""
        if not isinstance(key, str) or not re.fullmatch(_UUID, key.removeprefix(f"{self._fedml.topic}{sender}_")):
            return UnreadableMessage("its weights have a key in the S3 bucket that is not its own")
        weights = self._download(key)
        if self.address.rank == 0:
            self._remove(key)
        return weights

    def _send(self, message: Message) -> None:
        """Publish, and wait for the broker's acknowledgement; without a connection, wait for the next one."""
        topic, content = self._encode(message)
        deadline = time.monotonic() + self.address.send_timeout
        while time.monotonic() < deadline:
            if not self._client.is_connected():
                time.sleep(0.1)
                continue
            info = self._client.publish(topic, content, qos=2)
            try:
                info.wait_for_publish(timeout=max(0.1, deadline - time.monotonic()))
                if info.is_published():
                    return
            except RuntimeError:
                # The connection has broken since; a second copy of the message is dropped by its receiver.
                continue
            except ValueError as error:
                raise Unreachable(f"the MQTT broker ({error})") from error
        raise Unreachable(f"the MQTT broker (no acknowledgement in {self.address.send_timeout:g} s)")

    def _send_nowait(self, message: Message) -> None:
        """Publish without waiting."""
        topic, content = self._encode(message)
        self._client.publish(topic, content, qos=2)

    def _encode(self, message: Message) -> tuple[str, str]:
        """Upload the weights of a message; its topic and its content."""
        fedml = self._fedml
        if self.address.rank == 0:
            topic = f"{fedml.topic}{fedml.server_id}_{message.get_receiver_id()}"
        else:
            topic = f"{fedml.topic}{message.get_sender_id()}"
        params = message.get_params()
        weights = params.get(WEIGHTS)
        if weights is not None:
            upload = weights if isinstance(weights, Upload) else self._upload(weights)
            params = {**params, WEIGHTS: upload.key}
        # Not retained, unlike FedML's: a retained message is for later subscribers, and FedML ignores it.
        return topic, json.dumps(params)

    def _upload(self, weights: Mapping[str, Tensor]) -> Upload:
        upload = Upload(encode_weights(weights))
        upload.key = f"{self._fedml.topic}{self.address.own_id}_{uuid.uuid4()}"
        try:
            self._s3.upload_fileobj(Fileobj=io.BytesIO(upload), Bucket=self._bucket, Key=upload.key)
        except _S3_ERRORS as error:
            raise Unreachable(f"the S3 bucket {self._bucket!r} ({error})") from error
        return upload

    def _download(self, key: str) -> Any:
        try:
            response = self._s3.get_object(Bucket=self._bucket, Key=key)
            if response["ContentLength"] > self.address.max_message_bytes:
                return UnreadableMessage(f"its weights in the S3 bucket have {response['ContentLength']} bytes")
            return decode_weights_or_error(response["Body"].read())
        except self._s3.exceptions.NoSuchKey:
            # The sender has named a key of its own without uploading anything.
            return UnreadableMessage("its weights are not in the S3 bucket")
        except _S3_ERRORS as error:
            raise UnreadableMessage(f"its weights could not be fetched from the S3 bucket ({error})") from error

    def _remove(self, key: str) -> None:
        # A silo's model is needed for one round only. If the bucket forbids the removal, its owner has to clean up.
        try:
            self._s3.delete_object(Bucket=self._bucket, Key=key)
        except _S3_ERRORS as error:
            _log.warning("the weights under the key %s remain in the S3 bucket (%s)", key, error)

    def _connect(self, broker: Any, bucket: Any, args: Any, seconds: float) -> _FedmlConnection:
        files = TlsFiles.from_config(broker, "customized_training_mqtt_config")
        tls = None if files is None else files.make_context()
        address = f"{broker['BROKER_HOST']}:{broker['BROKER_PORT']}"
        deadline = time.monotonic() + seconds
        while True:
            try:
                return _FedmlConnection(self, broker, bucket, args, self.address, tls)
            except ssl.SSLCertVerificationError as error:
                raise RunStopped(
                    f"the certificate of the MQTT broker at {address} is not valid ({error.verify_message}); correct "
                    "tls_authority or BROKER_HOST in comm_args.customized_training_mqtt_config"
                ) from None
            except OSError as error:
                if time.monotonic() > deadline:
                    raise RunStopped(
                        f"the MQTT broker at {address} could not be reached for {seconds:g} s "
                        f"(comm_args.start_timeout): {error}; start it, or correct the address"
                    ) from None
            time.sleep(1.0)

    def _wait_until_accepted(self, broker: Any, deadline: float) -> None:
        """Wait for the broker's reply to the connection; without it, a wrong password would look like silence."""
        fedml_on_connect, fedml_on_disconnect = self._client.on_connect, self._client.on_disconnect
        codes: list[int] = []
        closed: list[int] = []

        def on_connect(client: Any, userdata: Any, flags: Any, code: int) -> None:
            codes.append(code)
            fedml_on_connect(client, userdata, flags, code)

        def on_disconnect(client: Any, userdata: Any, code: int) -> None:
            closed.append(code)
            fedml_on_disconnect(client, userdata, code)

        self._client.on_connect, self._client.on_disconnect = on_connect, on_disconnect
        self._client.loop_start()
        address = f"{broker['BROKER_HOST']}:{broker['BROKER_PORT']}"
        while mqtt.CONNACK_ACCEPTED not in codes:
            if codes and codes[-1] in (mqtt.CONNACK_REFUSED_BAD_USERNAME_PASSWORD, mqtt.CONNACK_REFUSED_NOT_AUTHORIZED):
                raise RunStopped(
                    f"the MQTT broker at {address} rejects the user {str(broker['MQTT_USER'])!r} "
                    f"({mqtt.connack_string(codes[-1])}); correct MQTT_USER and MQTT_PWD in "
                    "comm_args.customized_training_mqtt_config"
                )
            if len(closed) >= _MAX_CLOSED or time.monotonic() > deadline:
                raise RunStopped(
                    f"the MQTT broker at {address} closes the connection or does not reply; correct the port, or "
                    "tls_authority, tls_certificate and tls_key, in comm_args.customized_training_mqtt_config"
                )
            time.sleep(0.02)


def _make_s3_client(config: Mapping[str, Any]) -> Any:
    """A client of the bucket. An https endpoint is verified, by default with the public authorities."""
    files = TlsFiles.from_config(config, "customized_training_s3_config")
    endpoint = config.get("CN_S3_ENDPOINT") or None
    if files is not None and endpoint is not None and not str(endpoint).startswith("https://"):
        raise UserError(
            f"comm_args.customized_training_s3_config has TLS keys, but CN_S3_ENDPOINT is {str(endpoint)!r}; it must "
            "begin with https://"
        )
    verify: str | None = None
    client_certificate: tuple[str, str] | None = None
    if files is not None:
        files.make_context()
        verify = None if files.authority == SYSTEM_AUTHORITIES else files.authority
        client_certificate = files.certificate_and_key
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=config.get("CN_REGION_NAME") or "us-east-1",
        aws_access_key_id=config["CN_S3_AKI"],
        aws_secret_access_key=config["CN_S3_SAK"],
        verify=verify,
        config=Config(signature_version="s3v4", client_cert=client_certificate),
    )


def _check_keys(config: Any, name: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(config, Mapping) or not config:
        raise UserError(f"backend MQTT_S3 needs comm_args.{name} with the keys {', '.join(keys)}; add it")
    for key in keys:
        if key not in config:
            raise UserError(f"comm_args.{name} has no key {key!r}; add it (empty where there is none)")
    return dict(config)
