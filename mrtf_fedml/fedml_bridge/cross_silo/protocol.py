"""What server and silos say to each other.

The types and the keys are FedML's. What FedML's messages lack is added: the number of the round, which travels with
the weights both ways, so that an answer that comes too late is known as such and a silo that missed rounds has the
right number; and the incarnation of the speaker, so that one that was started anew is told from one that was only
silent.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

from fedml.core.distributed.communication.message import Message
from fedml.cross_silo.server.message_define import MyMessage
from torch import Tensor

PING = MyMessage.MSG_TYPE_S2C_CHECK_CLIENT_STATUS
ROUND = MyMessage.MSG_TYPE_S2C_SYNC_MODEL_TO_CLIENT
FINISH = MyMessage.MSG_TYPE_S2C_FINISH
ANSWER = MyMessage.MSG_TYPE_C2S_SEND_MODEL_TO_SERVER
STATUS = MyMessage.MSG_TYPE_C2S_CLIENT_STATUS
READY = MyMessage.MSG_TYPE_CONNECTION_IS_READY

ONLINE = "ONLINE"
FINISHED = "FINISHED"

SERVER = 0

_ROUND_INDEX = "round_idx"
_INCARNATION = "incarnation"
_REASON = "reason"
_MODEL_SIGNATURE = "model_signature"


def new_incarnation() -> str:
    """A name for this process's part in the run."""
    return uuid.uuid4().hex


def signature_of(weights: Mapping[str, Tensor]) -> str:
    """A hash of the weights' names, shapes and types; parties whose signatures differ cannot exchange weights."""
    text = ";".join(f"{key}:{tuple(tensor.shape)}:{tensor.dtype}" for key, tensor in sorted(weights.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def ping(incarnation: str, receiver: int) -> Message:
    """The server lives."""
    return _message(PING, SERVER, receiver, {_INCARNATION: incarnation})


def hand_out(incarnation: str, receiver: int, client: int, round_index: int, weights: Any) -> Message:
    """theta_t, for the client's part in round t."""
    facts = {_INCARNATION: incarnation, _ROUND_INDEX: round_index, MyMessage.MSG_ARG_KEY_CLIENT_INDEX: client}
    return _message(ROUND, SERVER, receiver, {**facts, MyMessage.MSG_ARG_KEY_MODEL_PARAMS: weights})


def finish(incarnation: str, receiver: int, reason: str) -> Message:
    """No more rounds; the reason is empty where all is well."""
    return _message(FINISH, SERVER, receiver, {_INCARNATION: incarnation, _REASON: reason})


def status(incarnation: str, sender: int, word: str, model_signature: str) -> Message:
    """A silo is there, or has ended."""
    facts = {_INCARNATION: incarnation, MyMessage.MSG_ARG_KEY_CLIENT_STATUS: word, _MODEL_SIGNATURE: model_signature}
    return _message(STATUS, sender, SERVER, facts)


def answer(incarnation: str, sender: int, round_index: int, samples: int, weights: Any) -> Message:
    """theta_{t,k}, and how many samples it was trained on."""
    facts = {_INCARNATION: incarnation, _ROUND_INDEX: round_index, MyMessage.MSG_ARG_KEY_NUM_SAMPLES: samples}
    return _message(ANSWER, sender, SERVER, {**facts, MyMessage.MSG_ARG_KEY_MODEL_PARAMS: weights})


def incarnation_of(message: Message) -> str:
    """Which process speaks."""
    return str(message.get(_INCARNATION))


def round_of(message: Message) -> int:
    """The round that a message belongs to."""
    return int(message.get(_ROUND_INDEX))


def reason_of(message: Message) -> str:
    """Why a run was ended, or nothing."""
    return str(message.get(_REASON) or "")


def status_of(message: Message) -> tuple[str, str]:
    """The word of a silo's status, and the signature of its model."""
    return str(message.get(MyMessage.MSG_ARG_KEY_CLIENT_STATUS)), str(message.get(_MODEL_SIGNATURE))


def samples_of(message: Message) -> int:
    """How many samples an answer was trained on."""
    return int(message.get(MyMessage.MSG_ARG_KEY_NUM_SAMPLES))


def weights_in(message: Message) -> Any:
    """The weights that a message carries."""
    return message.get(MyMessage.MSG_ARG_KEY_MODEL_PARAMS)


def _message(kind: int, sender: int, receiver: int, facts: Mapping[str, Any]) -> Message:
    message = Message(kind, sender, receiver)
    for key, value in facts.items():
        message.add_params(key, value)
    return message
