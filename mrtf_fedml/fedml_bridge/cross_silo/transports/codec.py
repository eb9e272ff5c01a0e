"""A message as bytes and back, with nothing in it that could run.

FedML pickles its messages and unpickles whatever arrives, so that whoever reaches a port can run code there. Here a
message is a line of JSON for its facts and a safetensors block for its weights: reading it makes numbers and texts.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from fedml.core.distributed.communication.message import Message
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

WEIGHTS = Message.MSG_ARG_KEY_MODEL_PARAMS
_ORDER = "weights_order"
#: Facts, without the weights, are short; names of classes are the longest among them.
LONGEST_FACTS = 2**20
#: What a reader says of a stranger's bytes may repeat them at length.
_LONGEST_REASON = 200


class UnreadableMessage(ValueError):
    """Bytes that are no message of ours."""


def encode_weights(weights: Mapping[str, Tensor]) -> bytes:
    """The weights as one block; the dict and its tensors stay as they are."""
    # Copies, since safetensors refuses tensors that share memory, as tied layers do.
    return save(
        {key: tensor.detach().cpu().contiguous().clone() for key, tensor in weights.items()},
        metadata={_ORDER: json.dumps(list(weights))},
    )


def decode_weights(block: bytes) -> OrderedDict[str, Tensor]:
    """The weights of a block, in the order in which they were given.

    >>> import torch
    >>> list(decode_weights(encode_weights({"z": torch.ones(2), "a": torch.zeros(())})))
    ['z', 'a']
    """
    try:
        size = int.from_bytes(block[:8], "little")
        order = json.loads(json.loads(block[8 : 8 + size])["__metadata__"][_ORDER])
        tensors = load(block)
        return OrderedDict((key, tensors[key]) for key in order)
    except (
        SafetensorError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RuntimeError,
        ArithmeticError,
    ) as error:
        reason = ascii(str(error))[1:-1][:_LONGEST_REASON]
        raise UnreadableMessage(f"a block of weights cannot be read ({reason})") from error


def encode(params: Mapping[str, Any]) -> bytes:
    """A message's parameters: four bytes of length, the facts, and the weights (tensors, or a block of them)."""
    facts = {key: value for key, value in params.items() if key != WEIGHTS}
    weights = params.get(WEIGHTS)
    block = b"" if weights is None else weights if isinstance(weights, bytes) else encode_weights(weights)
    head = json.dumps(facts).encode()
    return len(head).to_bytes(4, "little") + head + block


def decode(raw: bytes) -> Message:
    """The message that `encode` made bytes of."""
    size = int.from_bytes(raw[:4], "little")
    if size > LONGEST_FACTS:
        raise UnreadableMessage(f"{len(raw)} bytes are no message of ours: {size} of them would be its facts")
    try:
        params = json.loads(raw[4 : 4 + size])
    except (ValueError, RecursionError) as error:
        raise UnreadableMessage(f"{len(raw)} bytes are no message of ours") from error
    if not isinstance(params, dict):
        raise UnreadableMessage(f"{len(raw)} bytes are no message of ours")
    if len(raw) > 4 + size:
        params[WEIGHTS] = weights_or_fault(raw[4 + size :])
    return message_of(params)


def weights_or_fault(block: bytes) -> OrderedDict[str, Tensor] | UnreadableMessage:
    """The weights; where they cannot be read, the reason in their place, so that the sender is known."""
    try:
        return decode_weights(block)
    except UnreadableMessage as fault:
        return fault


def message_of(params: dict[str, Any]) -> Message:
    """FedML's message around these parameters."""
    message = Message()
    try:
        message.init_from_json_object(params)
    except (KeyError, TypeError, AttributeError) as error:
        raise UnreadableMessage("a message names no type, sender or receiver") from error
    return message
