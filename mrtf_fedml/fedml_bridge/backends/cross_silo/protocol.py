"""The messages between server and silos.

The types and keys are FedML's. Three fields are added. The round index travels with the weights in both directions, so
that a late update is recognised and a silo that missed rounds has the right index. The incarnation identifies the
sender's process, so that a restarted party is distinguished from a silent one. The sequence number identifies
duplicates.
"""

from __future__ import annotations

import itertools
import math
import time
import uuid
from collections.abc import Mapping
from typing import Any

from fedml.core.distributed.communication.message import Message
from fedml.cross_silo.server.message_define import MyMessage

HEARTBEAT = MyMessage.MSG_TYPE_S2C_CHECK_CLIENT_STATUS
TASK = MyMessage.MSG_TYPE_S2C_SYNC_MODEL_TO_CLIENT
FINISH = MyMessage.MSG_TYPE_S2C_FINISH
UPDATE = MyMessage.MSG_TYPE_C2S_SEND_MODEL_TO_SERVER
STATUS = MyMessage.MSG_TYPE_C2S_CLIENT_STATUS

#: The names of the message types in logs.
KINDS = {HEARTBEAT: "heartbeat", TASK: "task", FINISH: "finish", UPDATE: "update", STATUS: "status"}

ONLINE = "ONLINE"
FINISHED = "FINISHED"
#: The sender asks what differs, and does not take part (`mrtf preflight`).
CHECK = "CHECK"

SERVER = 0

_ROUND_INDEX = "round_idx"
_INCARNATION = "incarnation"
_REASON = "reason"
_REJECTED = "rejected"
_HANDSHAKE = "handshake"
_TIME = "time"
_REPORT = "report"
_SEQUENCE_NUMBER = "number"
#: The sequence numbers of this process's messages.
_sequence_numbers = itertools.count(1)
_MAX_ROUND, _MAX_SEQUENCE_NUMBER = 2**31, 2**53
#: Largest sample count that a float holds exactly.
MAX_SAMPLES = 2**53
#: Longest received strings that are logged or remembered.
_MAX_REASON = 1000
_MAX_INCARNATION = 64


class InvalidPayload(ValueError):
    """A message that violates the protocol; the text says how."""


def new_incarnation() -> str:
    """A unique id for this process."""
    return uuid.uuid4().hex


def heartbeat_message(incarnation: str, receiver: int) -> Message:
    """The server is alive."""
    return _make_message(HEARTBEAT, SERVER, receiver, {_INCARNATION: incarnation})


def task_message(incarnation: str, receiver: int, client: int, round_index: int, weights: Any) -> Message:
    """theta_t, for the client's training in round t."""
    params = {_INCARNATION: incarnation, _ROUND_INDEX: round_index, MyMessage.MSG_ARG_KEY_CLIENT_INDEX: client}
    return _make_message(TASK, SERVER, receiver, {**params, MyMessage.MSG_ARG_KEY_MODEL_PARAMS: weights})


def finish_message(incarnation: str, receiver: int, reason: str, is_rejected: bool = False) -> Message:
    """The run has ended, or does not begin for a silo whose handshake is rejected; no reason if it ended normally."""
    params = {_INCARNATION: incarnation, _REASON: reason, _REJECTED: is_rejected}
    return _make_message(FINISH, SERVER, receiver, params)


def status_message(incarnation: str, sender: int, status: str, handshake: Mapping[str, Any]) -> Message:
    """A silo is online, with this handshake, has finished, or asks what differs."""
    params = {_INCARNATION: incarnation, MyMessage.MSG_ARG_KEY_CLIENT_STATUS: status, _HANDSHAKE: dict(handshake)}
    return _make_message(STATUS, sender, SERVER, {**params, _TIME: time.time()})


def report_message(incarnation: str, receiver: int, differences: Mapping[str, str], question: Message) -> Message:
    """The server's reply to a status message that asks what differs; it repeats the time of the question."""
    report = {"differences": dict(differences), "asked": get_time(question), "replied": time.time()}
    return _make_message(HEARTBEAT, SERVER, receiver, {_INCARNATION: incarnation, _REPORT: report})


def update_message(incarnation: str, sender: int, round_index: int, samples: int, weights: Any) -> Message:
    """theta_{t,k}, and its number of training samples."""
    params = {_INCARNATION: incarnation, _ROUND_INDEX: round_index, MyMessage.MSG_ARG_KEY_NUM_SAMPLES: samples}
    return _make_message(UPDATE, sender, SERVER, {**params, MyMessage.MSG_ARG_KEY_MODEL_PARAMS: weights})


def get_incarnation(message: Message) -> str:
    """The incarnation of the sender; empty if it is missing or invalid."""
    incarnation = message.get(_INCARNATION)
    is_valid = isinstance(incarnation, str) and len(incarnation) <= _MAX_INCARNATION
    return incarnation if is_valid else ""


def get_sequence_number(message: Message) -> int:
    """The sequence number; -1 if it is missing or invalid."""
    number = message.get(_SEQUENCE_NUMBER)
    is_integer = isinstance(number, int) and not isinstance(number, bool)
    return number if is_integer and number <= _MAX_SEQUENCE_NUMBER else -1


def get_sender(message: Message) -> int:
    """The id that the sender claims; -1 if it is invalid."""
    sender = message.get_sender_id()
    # FedML's platform also writes its ids as strings.
    if isinstance(sender, str) and sender.isascii() and sender.isdigit() and len(sender) < 20:
        return int(sender)
    return sender if isinstance(sender, int) else -1


def get_round(message: Message) -> int:
    """The round index.

    Raises:
        InvalidPayload: it is missing or invalid.
    """
    return _check_integer(message.get(_ROUND_INDEX), "round", 0, _MAX_ROUND)


def get_reason(message: Message) -> str:
    """Why the run has ended; empty if it ended normally."""
    return str(message.get(_REASON) or "")[:_MAX_REASON]


def is_rejected(message: Message) -> bool:
    """Whether the reason is the silo's handshake: its settings or files differ from the server's."""
    return message.get(_REJECTED) is True


def get_status(message: Message) -> tuple[str, Any]:
    """A silo's status, and its handshake."""
    return str(message.get(MyMessage.MSG_ARG_KEY_CLIENT_STATUS)), message.get(_HANDSHAKE)


def get_time(message: Message) -> float | None:
    """When a silo has sent its status, in seconds since 1970; None if it is missing or invalid."""
    sent = message.get(_TIME)
    return float(sent) if isinstance(sent, float) and math.isfinite(sent) else None


def get_report(message: Message) -> dict[str, Any] | None:
    """The server's reply to a question what differs; None in any other message."""
    report = message.get(_REPORT)
    is_valid = isinstance(report, dict) and isinstance(report.get("differences"), dict)
    return report if is_valid else None


def get_num_samples(message: Message) -> int:
    """The number of training samples of an update.

    Raises:
        InvalidPayload: it is missing or invalid.
    """
    return _check_integer(message.get(MyMessage.MSG_ARG_KEY_NUM_SAMPLES), "number of samples", 1, MAX_SAMPLES)


def get_weights(message: Message) -> Any:
    """The weights of a message, not yet validated."""
    return message.get(MyMessage.MSG_ARG_KEY_MODEL_PARAMS)


def _check_integer(value: Any, what: str, minimum: int, maximum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidPayload(f"its {what} is missing" if value is None else f"its {what} is a {type(value).__name__}")
    if not minimum <= value <= maximum:
        # An integer of thousands of digits is not printed.
        raise InvalidPayload(f"its {what} is {value if abs(value) <= 2 * maximum else 'far too large'}")
    return value


def _make_message(kind: int, sender: int, receiver: int, params: Mapping[str, Any]) -> Message:
    message = Message(kind, sender, receiver)
    for key, value in {**params, _SEQUENCE_NUMBER: next(_sequence_numbers)}.items():
        message.add_params(key, value)
    return message
