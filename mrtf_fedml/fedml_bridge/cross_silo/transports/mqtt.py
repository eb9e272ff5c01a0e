"""MQTT_S3: small messages through an MQTT broker, weights through an S3 bucket; no party needs an open port.

FedML's topics and its configuration, with a send that waits until the broker has acknowledged it, weights that are
read instead of unpickled, one upload per round for all silos, and no presigned address of a model in a message.
"""

from __future__ import annotations

import io
import json
import logging
import re
import time
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError
from fedml.core.distributed.communication.message import Message
from fedml.core.distributed.communication.mqtt_s3.mqtt_s3_multi_clients_comm_manager import (
    MqttS3MultiClientsCommManager,
)
from torch import Tensor

from ....errors import RunStopped, UserError
from ....settings import SiloSettings
from .backend import MOST_UNREAD, PartyAddress, SiloBackend, Unreachable
from .codec import (
    LONGEST_FACTS,
    WEIGHTS,
    UnreadableMessage,
    encode_weights,
    message_of,
    weights_or_fault,
)

_log = logging.getLogger(__name__)

_BROKER_KEYS = ("BROKER_HOST", "BROKER_PORT", "MQTT_USER", "MQTT_PWD", "MQTT_KEEPALIVE")
_BUCKET_KEYS = ("BUCKET_NAME", "CN_S3_AKI", "CN_S3_SAK")
#: How the key of an upload ends.
_UPLOADED = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_S3_ERRORS = (BotoCoreError, ClientError, Boto3Error)


class _FedmlMqtt(MqttS3MultiClientsCommManager):
    """FedML's connection to broker and bucket; what arrives goes, unread, to a queue."""

    def __init__(self, backend: MqttBackend, broker: Any, bucket: Any, args: Any, address: PartyAddress) -> None:
        self.backend = backend
        super().__init__(
            broker,
            bucket,
            topic=str(args.run_id),
            client_rank=address.rank,
            client_num=len(address.ranks) - 1,
            args=args,
        )

    def _on_message(self, msg: Any) -> None:
        # The network thread must not wait for S3, or the broker takes this party for dead.
        if len(msg.payload) > LONGEST_FACTS or self.backend.arrived.qsize() >= MOST_UNREAD:
            _log.warning("a message of %d bytes on our topic was dropped", len(msg.payload))
            return
        self.backend.arrived.put((msg.topic, msg.payload))


class MqttBackend(SiloBackend):
    """One end of the federation over MQTT and S3."""

    takes_back: ClassVar[bool] = True

    def __init__(self, args: Any, address: PartyAddress, settings: SiloSettings, broker: Any, bucket: Any) -> None:
        super().__init__()
        self._address = address
        broker = _checked(broker, "customized_training_mqtt_config", _BROKER_KEYS)
        bucket = _checked(bucket, "customized_training_s3_config", _BUCKET_KEYS)
        args.client_id_list = json.dumps([party for party, rank in address.ranks.items() if rank > 0])
        self._fedml = self._connected(broker, bucket, args, settings.start_timeout)
        self._client = self._fedml.mqtt_mgr._client
        self._bucket = bucket["BUCKET_NAME"]
        self._s3 = self._fedml.s3_storage.aws_s3_client
        self._packed: list[str] = []
        self._client.loop_start()

    def _pack(self, weights: Mapping[str, Tensor]) -> str:
        """The key under which the weights lie in the bucket, until `forget_packed`."""
        self._packed.append(self._upload(weights))
        return self._packed[-1]

    def _forget_packed(self) -> None:
        """Remove the weights of the round before from the bucket."""
        while self._packed:
            self._remove(self._packed.pop())

    def _send(self, msg: Message) -> None:
        """Publish, and wait until the broker has taken the message over."""
        info = self._publish(msg)
        try:
            info.wait_for_publish(timeout=self._address.patience)
        except (RuntimeError, ValueError) as error:
            raise Unreachable(f"the MQTT broker ({error})") from error
        if not info.is_published():
            raise Unreachable(f"the MQTT broker (no acknowledgement in {self._address.patience:g} s)")

    def _ping(self, msg: Message) -> None:
        """Publish without waiting."""
        self._publish(msg)

    def read(self, raw: tuple[str, bytes]) -> Message:
        """The message, with its weights fetched from the bucket."""
        topic, payload = raw
        try:
            params = json.loads(payload)
            key, sender = params.get(WEIGHTS), str(params.get(Message.MSG_ARG_KEY_SENDER))
        except (ValueError, AttributeError, RecursionError) as error:
            raise UnreadableMessage("a message on our topic is not JSON of ours") from error
        if self._address.rank == 0 and topic != f"{self._fedml.topic}{sender}":
            # A broker may let each silo write to its own topic only; so the topic says who speaks.
            raise UnreadableMessage(f"a message on {topic[:60]!r} is in the name of {sender[:20]!r}")
        if key is not None:
            params[WEIGHTS] = self._weights_of(sender, key)
        return message_of(params)

    def _weights_of(self, sender: str, key: Any) -> Any:
        """What lies in the bucket for us; only what its sender has put there is read, and removed."""
        if not isinstance(key, str) or not re.fullmatch(_UPLOADED, key.removeprefix(f"{self._fedml.topic}{sender}_")):
            return UnreadableMessage("its weights lie under a key of the S3 bucket that is not its own")
        weights = self._download(key)
        if self._address.rank == 0:
            self._remove(key)
        return weights

    def stop_receive_message(self) -> None:
        """Take leave of the broker, so that it sends no last will."""
        if self._address.rank == 0:
            self.forget_packed()
        self._client.disconnect()
        self._client.loop_stop()
        super().stop_receive_message()

    def _publish(self, msg: Message) -> Any:
        fedml = self._fedml
        if self._address.rank == 0:
            topic = f"{fedml.topic}{fedml.server_id}_{msg.get_receiver_id()}"
        else:
            topic = f"{fedml.topic}{msg.get_sender_id()}"
        params = msg.get_params()
        if isinstance(params.get(WEIGHTS), Mapping):
            params = {**params, WEIGHTS: self._upload(params[WEIGHTS])}
        # Not retained, unlike FedML's: a retained message is for those who come later, and FedML ignores it.
        return self._client.publish(topic, payload=json.dumps(params), qos=2)

    def _upload(self, weights: Mapping[str, Tensor]) -> str:
        key = f"{self._fedml.topic}{self._address.own_id}_{uuid.uuid4()}"
        try:
            self._s3.upload_fileobj(Fileobj=io.BytesIO(encode_weights(weights)), Bucket=self._bucket, Key=key)
        except _S3_ERRORS as error:
            raise Unreachable(f"the S3 bucket {self._bucket!r} ({error})") from error
        return key

    def _download(self, key: str) -> Any:
        try:
            found = self._s3.get_object(Bucket=self._bucket, Key=key)
            if found["ContentLength"] > self._address.longest:
                return UnreadableMessage(f"its weights in the S3 bucket are {found['ContentLength']} bytes")
            return weights_or_fault(found["Body"].read())
        except self._s3.exceptions.NoSuchKey:
            # Its sender named a key of its own, and laid nothing there.
            return UnreadableMessage("its weights are not in the S3 bucket")
        except _S3_ERRORS as error:
            raise UnreadableMessage(f"its weights could not be fetched from the S3 bucket ({error})") from error

    def _remove(self, key: str) -> None:
        # A silo's model need not outlive its round; where the bucket forbids it, its owner has to clear up.
        try:
            self._s3.delete_object(Bucket=self._bucket, Key=key)
        except _S3_ERRORS as error:
            _log.warning("weights stay in the S3 bucket under %s (%s)", key, error)

    def _connected(self, broker: Any, bucket: Any, args: Any, seconds: float) -> _FedmlMqtt:
        deadline = time.monotonic() + seconds
        while True:
            try:
                return _FedmlMqtt(self, broker, bucket, args, self._address)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise RunStopped(
                        f"the MQTT broker at {broker['BROKER_HOST']}:{broker['BROKER_PORT']} could not be reached for "
                        f"{seconds:g} s (comm_args.start_timeout): {error}; start it, or correct the address"
                    ) from None
            time.sleep(1.0)


def _checked(given: Any, name: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not given:
        raise UserError(f"backend MQTT_S3 needs comm_args.{name} with the keys {', '.join(keys)}; give it")
    for key in keys:
        if key not in given:
            raise UserError(f"comm_args.{name} has no key {key!r}; give it (empty where there is none)")
    return dict(given)
