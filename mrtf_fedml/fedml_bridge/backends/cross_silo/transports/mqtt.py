"""MQTT_S3: messages through an MQTT broker, weights through an S3 bucket; no party needs an open port.

FedML's topics and its configuration, with sends that wait for the broker's acknowledgement, no unpickling, one upload
per round for all silos, and no presigned URL of a model in a message.
"""

from __future__ import annotations

import io
import json
import logging
import re
import time
import uuid
from collections.abc import Mapping
from typing import Any

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError
from fedml.core.distributed.communication.message import Message
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

_log = logging.getLogger(__name__)

_BROKER_KEYS = ("BROKER_HOST", "BROKER_PORT", "MQTT_USER", "MQTT_PWD", "MQTT_KEEPALIVE")
_BUCKET_KEYS = ("BUCKET_NAME", "CN_S3_AKI", "CN_S3_SAK")
#: The last part of an upload's key.
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_S3_ERRORS = (BotoCoreError, ClientError, Boto3Error)


class Upload(bytes):
    """A block of weights, with its key in the bucket."""

    key: str


class _FedmlConnection(MqttS3MultiClientsCommManager):
    """FedML's connection to broker and bucket."""

    def __init__(self, transport: MqttTransport, broker: Any, bucket: Any, args: Any, address: PartyAddress) -> None:
        self._transport = transport
        super().__init__(
            broker,
            bucket,
            topic=str(args.run_id),
            client_rank=address.rank,
            client_num=len(address.ranks) - 1,
            args=args,
        )

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
        self._fedml = self._connect(broker, bucket, args, settings.start_timeout)
        self._client = self._fedml.mqtt_mgr._client
        self._bucket = bucket["BUCKET_NAME"]
        self._s3 = self._fedml.s3_storage.aws_s3_client
        self._packed: list[Upload] = []
        self._client.loop_start()

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
        """Publish, and wait for the broker's acknowledgement."""
        info = self._publish(message)
        try:
            info.wait_for_publish(timeout=self.address.send_timeout)
        except (RuntimeError, ValueError) as error:
            raise Unreachable(f"the MQTT broker ({error})") from error
        if not info.is_published():
            raise Unreachable(f"the MQTT broker (no acknowledgement in {self.address.send_timeout:g} s)")

    def _send_nowait(self, message: Message) -> None:
        """Publish without waiting."""
        self._publish(message)

    def _publish(self, message: Message) -> Any:
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
        return self._client.publish(topic, payload=json.dumps(params), qos=2)

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
        deadline = time.monotonic() + seconds
        while True:
            try:
                return _FedmlConnection(self, broker, bucket, args, self.address)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise RunStopped(
                        f"the MQTT broker at {broker['BROKER_HOST']}:{broker['BROKER_PORT']} could not be reached for "
                        f"{seconds:g} s (comm_args.start_timeout): {error}; start it, or correct the address"
                    ) from None
            time.sleep(1.0)


def _check_keys(config: Any, name: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(config, Mapping) or not config:
        raise UserError(f"backend MQTT_S3 needs comm_args.{name} with the keys {', '.join(keys)}; add it")
    for key in keys:
        if key not in config:
            raise UserError(f"comm_args.{name} has no key {key!r}; add it (empty where there is none)")
    return dict(config)
