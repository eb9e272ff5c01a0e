"""What server and silos say to each other.

The types and the keys are FedML's. What FedML's messages lack is added: the number of the round, which travels with
the weights both ways, so that an answer that comes too late is known as such and a silo that missed rounds has the
right number; and the incarnation of the speaker, so that one that was started anew is told from one that was only
silent.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping
from typing import Any

from fedml.core.distributed.communication.message import Message
from fedml.cross_silo.server.message_define import MyMessage

from .expected_weights import MOST_SAMPLES, Malformed

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
_TERMS = "terms"
_NUMBER = "number"
#: Of this process's messages: each has its own.
_numbers = itertools.count(1)
#: No run has more rounds, and no process sends more messages.
_MOST_ROUNDS, _MOST_MESSAGES = 2**31, 2**53
#: A stranger's text is not repeated at length, nor remembered.
_LONGEST_REASON = 1000
_LONGEST_INCARNATION = 64


def new_incarnation() -> str:
    """A name for this process's part in the run."""
    return uuid.uuid4().hex


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


def status(incarnation: str, sender: int, word: str, terms: Mapping[str, Any]) -> Message:
    """A silo is there, on these terms, or has ended."""
    facts = {_INCARNATION: incarnation, MyMessage.MSG_ARG_KEY_CLIENT_STATUS: word, _TERMS: dict(terms)}
    return _message(STATUS, sender, SERVER, facts)


def answer(incarnation: str, sender: int, round_index: int, samples: int, weights: Any) -> Message:
    """theta_{t,k}, and how many samples it was trained on."""
    facts = {_INCARNATION: incarnation, _ROUND_INDEX: round_index, MyMessage.MSG_ARG_KEY_NUM_SAMPLES: samples}
    return _message(ANSWER, sender, SERVER, {**facts, MyMessage.MSG_ARG_KEY_MODEL_PARAMS: weights})


def incarnation_of(message: Message) -> str:
    """Which process speaks; nothing where it does not say."""
    incarnation = message.get(_INCARNATION)
    named = isinstance(incarnation, str) and len(incarnation) <= _LONGEST_INCARNATION
    return incarnation if named else ""


def number_of(message: Message) -> int:
    """Which of its speaker's messages it is; none where it does not say."""
    number = message.get(_NUMBER)
    whole = isinstance(number, int) and not isinstance(number, bool)
    return number if whole and number <= _MOST_MESSAGES else -1


def sender_of(message: Message) -> int:
    """Who says that it speaks; nobody's number where it is none."""
    sender = message.get_sender_id()
    # FedML's platform writes its numbers as texts too.
    if isinstance(sender, str) and sender.isascii() and sender.isdigit() and len(sender) < 20:
        return int(sender)
    return sender if isinstance(sender, int) else -1


def round_of(message: Message) -> int:
    """The round that a message belongs to."""
    return _whole(message.get(_ROUND_INDEX), "round", 0, _MOST_ROUNDS)


def reason_of(message: Message) -> str:
    """Why a run was ended, or nothing."""
    return str(message.get(_REASON) or "")[:_LONGEST_REASON]


def status_of(message: Message) -> tuple[str, Any]:
    """The word of a silo's status, and the terms that it names."""
    return str(message.get(MyMessage.MSG_ARG_KEY_CLIENT_STATUS)), message.get(_TERMS)


def samples_of(message: Message) -> int:
    """How many samples an answer was trained on."""
    return _whole(message.get(MyMessage.MSG_ARG_KEY_NUM_SAMPLES), "number of samples", 1, MOST_SAMPLES)


def weights_in(message: Message) -> Any:
    """The weights that a message carries."""
    return message.get(MyMessage.MSG_ARG_KEY_MODEL_PARAMS)


def _whole(value: Any, what: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Malformed(f"its {what} is missing" if value is None else f"its {what} is a {type(value).__name__}")
    if not least <= value <= most:
        # A number of thousands of digits is no text that anybody wants to read.
        raise Malformed(f"its {what} is {value if abs(value) <= 2 * most else 'a far too large number'}")
    return value


def _message(kind: int, sender: int, receiver: int, facts: Mapping[str, Any]) -> Message:
    message = Message(kind, sender, receiver)
    for key, value in {**facts, _NUMBER: next(_numbers)}.items():
        message.add_params(key, value)
    return message
