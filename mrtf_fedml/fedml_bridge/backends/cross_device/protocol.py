"""The messages between server and devices: topics, message types, keys.

They are those of FedML's server (fedml.cross_device.server_mnn) and its Android app (FedML's repository,
android/fedmlsdk); docs/guides/cross_device.md describes a run. This module does not import FedML, so that an emulated
device starts quickly.

One field is used differently. An update message has no field for its round, but a device returns `client_idx`, which
FedML's server sets to the index of a dataset that no device has, unchanged. So it carries the round index, and a late
update is recognised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Server to device: first model, later model, status request, end of the run.
INIT, SYNC, CHECK, FINISH = 1, 2, 6, 7
#: Device to server: trained model, status.
UPDATE, STATUS = 3, 5

#: The names of the message types in the audit log.
KINDS = {INIT: "task", SYNC: "task", CHECK: "check", FINISH: "finish", UPDATE: "update", STATUS: "status"}

ONLINE = "ONLINE"
FINISHED = "FINISHED"
OFFLINE = "OFFLINE"
IDLE = "IDLE"

#: Topic of a device's status; `IDLE` when it has just connected.
STATUS_TOPIC = "fl_client/mlops/status"
#: Topics of the broker's last will for a lost device, and for a lost server.
LAST_WILL_TOPIC = "flclient_agent/last_will_msg"
SERVER_LAST_WILL_TOPIC = "flserver/last_will_msg"

TYPE, SENDER, RECEIVER = "msg_type", "sender", "receiver"
MODEL, MODEL_KEY, ROUND, SAMPLES = "model_params", "model_params_key", "client_idx", "num_samples"
CLIENT_STATUS, CLIENT_OS = "client_status", "client_os"

_ANDROID = "Android"


class UnreadableMessage(ValueError):
    """A received message is invalid; the text says why."""


@dataclass(frozen=True)
class Topics:
    """The topics of one run."""

    run: str
    server: str

    @staticmethod
    def start(device: int) -> str:
        """The topic of a device's start message."""
        return f"flserver_agent/{device}/start_train"

    def to_device(self, device: int) -> str:
        """The topic of the server's messages to a device; also the prefix of the device's keys in the bucket."""
        return f"fedml_{self.run}_{self.server}_{device}"

    def model_prefix(self) -> str:
        """The prefix of the keys of all models of the run."""
        return f"fedml_{self.run}_{self.server}_"

    def from_device(self, device: int) -> str:
        """The topic of a device's messages to the server."""
        return f"fedml_{self.run}_{device}"


def decode(payload: bytes) -> dict[str, Any]:
    """A message as a mapping."""
    try:
        message = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise UnreadableMessage("it is not JSON") from error
    if not isinstance(message, dict):
        raise UnreadableMessage("it is not a JSON object")
    return message


def get_integer(message: Mapping[str, Any], key: str) -> int:
    """An integer, sent as a number or as a string."""
    value = message.get(key)
    try:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError
        return int(value)
    except ValueError:
        raise UnreadableMessage(f"its {key} is {str(value)[:40]!r}, not an integer") from None


def get_string(message: Mapping[str, Any], key: str) -> str:
    """A string."""
    value = message.get(key)
    if not isinstance(value, str):
        raise UnreadableMessage(f"it has no {key}")
    return value


def task_message(kind: int, server: int, device: int, round_index: int, key: str) -> dict[str, Any]:
    """The key of theta_t in the bucket; kind is INIT or SYNC."""
    message = {TYPE: kind, SENDER: server, RECEIVER: device, MODEL: key, MODEL_KEY: key}
    return message | {ROUND: str(round_index), CLIENT_OS: "AndroidClient"}


def check_message(server: int, device: int) -> dict[str, Any]:
    """Asks for the device's status; it replies ONLINE."""
    return {TYPE: CHECK, SENDER: server, RECEIVER: device, ROUND: "0"}


def finish_message(server: int, device: int) -> dict[str, Any]:
    """The run has ended."""
    return {TYPE: FINISH, SENDER: server, RECEIVER: device, ROUND: "0"}


def status_message(device: int, status: str) -> dict[str, Any]:
    """ONLINE or FINISHED."""
    return {TYPE: STATUS, SENDER: device, RECEIVER: 0, CLIENT_STATUS: status, CLIENT_OS: _ANDROID}


def update_message(device: int, round_index: str, key: str, samples: int) -> dict[str, Any]:
    """The key of theta_{t,k} in the bucket, and its number of training samples."""
    return {TYPE: UPDATE, SENDER: device, RECEIVER: 0, MODEL: key, ROUND: round_index, SAMPLES: samples}


def start_message(
    run: str, server: str, device: int, train: Mapping[str, Any], data: Mapping[str, Any]
) -> dict[str, Any]:
    """A run begins, with the parameters that a device needs."""
    return {
        "runId": int(run) if run.isdigit() else run,
        "server_id": server,
        "groupid": "",
        "edgeids": [device],
        "run_config": {"parameters": {"train_args": dict(train), "data_args": dict(data)}},
    }
