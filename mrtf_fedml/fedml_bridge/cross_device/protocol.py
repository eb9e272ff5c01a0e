"""What FedML's server and its devices say to each other: topics, message types, keys.

They are FedML's, as its server (fedml.cross_device.server_mnn) and its Android app (FedML's repository,
android/fedmlsdk) speak them; docs/cross_device.md goes through a run. This module imports no FedML, so that an
emulated device starts at once.

One thing is used otherwise than FedML does. An answer has no room for the number of its round, but `client_idx`, which
FedML's server fills with the index of a dataset that no device has, comes back in the answer as it was sent. So it
carries the round, and an answer that comes too late is known as such.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Server to device: the first model, a later model, are you there, it is over.
INIT, SYNC, CHECK, FINISH = 1, 2, 6, 7
#: Device to server: a trained model, a status.
ANSWER, STATUS = 3, 5

ONLINE = "ONLINE"
FINISHED = "FINISHED"
OFFLINE = "OFFLINE"
IDLE = "IDLE"

#: Under which a device says what it is doing; `IDLE` when it has just connected.
STATUS_TOPIC = "fl_client/mlops/status"
#: Where the broker tells of a device that it has lost, and of a server.
LAST_WILL_TOPIC = "flclient_agent/last_will_msg"
SERVER_LAST_WILL_TOPIC = "flserver/last_will_msg"

TYPE, SENDER, RECEIVER = "msg_type", "sender", "receiver"
MODEL, MODEL_KEY, ROUND, SAMPLES = "model_params", "model_params_key", "client_idx", "num_samples"
CLIENT_STATUS, CLIENT_OS = "client_status", "client_os"

_ANDROID = "Android"


class UnreadableMessage(ValueError):
    """What arrived is not FedML's; the message says why."""


@dataclass(frozen=True)
class Topics:
    """The topics of one run."""

    run: str
    server: str

    @staticmethod
    def start(device: int) -> str:
        """Where a device is told that a run begins."""
        return f"flserver_agent/{device}/start_train"

    def to_device(self, device: int) -> str:
        """What the server says to a device; also how the keys begin under which its models lie in the bucket."""
        return f"fedml_{self.run}_{self.server}_{device}"

    def of_models(self) -> str:
        """How the keys of all models of the run begin."""
        return f"fedml_{self.run}_{self.server}_"

    def from_device(self, device: int) -> str:
        """What a device says to the server."""
        return f"fedml_{self.run}_{device}"


def decoded(payload: bytes) -> dict[str, Any]:
    """A message as a mapping."""
    try:
        message = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise UnreadableMessage("it is not JSON") from error
    if not isinstance(message, dict):
        raise UnreadableMessage("it is not a JSON object")
    return message


def whole(message: Mapping[str, Any], key: str) -> int:
    """A whole number, sent as such or as text."""
    value = message.get(key)
    try:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError
        return int(value)
    except ValueError:
        raise UnreadableMessage(f"its {key} is {str(value)[:40]!r}, not a whole number") from None


def text(message: Mapping[str, Any], key: str) -> str:
    """Text."""
    value = message.get(key)
    if not isinstance(value, str):
        raise UnreadableMessage(f"it has no {key}")
    return value


def hand_out(kind: int, server: int, device: int, round_index: int, key: str) -> dict[str, Any]:
    """theta_t lies in the bucket under this key; kind is INIT or SYNC."""
    message = {TYPE: kind, SENDER: server, RECEIVER: device, MODEL: key, MODEL_KEY: key}
    return message | {ROUND: str(round_index), CLIENT_OS: "AndroidClient"}


def check(server: int, device: int) -> dict[str, Any]:
    """Whether the device is there; it answers ONLINE."""
    return {TYPE: CHECK, SENDER: server, RECEIVER: device, ROUND: "0"}


def finish(server: int, device: int) -> dict[str, Any]:
    """No more rounds."""
    return {TYPE: FINISH, SENDER: server, RECEIVER: device, ROUND: "0"}


def status(device: int, word: str) -> dict[str, Any]:
    """ONLINE or FINISHED."""
    return {TYPE: STATUS, SENDER: device, RECEIVER: 0, CLIENT_STATUS: word, CLIENT_OS: _ANDROID}


def answer(device: int, round_text: str, key: str, samples: int) -> dict[str, Any]:
    """theta_{t,k} lies in the bucket under this key."""
    return {TYPE: ANSWER, SENDER: device, RECEIVER: 0, MODEL: key, ROUND: round_text, SAMPLES: samples}


def start(run: str, server: str, device: int, train: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """A run begins: what a device must know of it, and nothing of the server's."""
    return {
        "runId": int(run) if run.isdigit() else run,
        "server_id": server,
        "groupid": "",
        "edgeids": [device],
        "run_config": {"parameters": {"train_args": dict(train), "data_args": dict(data)}},
    }
