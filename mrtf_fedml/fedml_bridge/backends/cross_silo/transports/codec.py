"""Messages as bytes and back, without pickle.

FedML pickles its messages and unpickles whatever arrives, so that whoever reaches a port can run code there. Here a
message is one line of JSON for its parameters and a safetensors block for its weights.
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
#: Most bytes of a message without its weights; the class names are the longest part.
MAX_HEADER_BYTES = 2**20
#: A decoding error may quote the received bytes at length; its text is cut to this many characters.
_MAX_REASON = 200


class UnreadableMessage(ValueError):
    """Bytes that are not a message of this protocol."""


def encode_weights(weights: Mapping[str, Tensor]) -> bytes:
    """The weights as one safetensors block; the mapping and its tensors are not changed."""
    # Copies, because safetensors rejects tensors that share memory, as tied layers do.
    return save(
        {key: tensor.detach().cpu().contiguous().clone() for key, tensor in weights.items()},
        metadata={_ORDER: json.dumps(list(weights))},
    )


def decode_weights(block: bytes) -> OrderedDict[str, Tensor]:
    """The weights of a block, in their original order.

    >>> import torch
    >>> list(decode_weights(encode_weights({"z": torch.ones(2), "a": torch.zeros(())})))
    ['z', 'a']
    """
    try:
        tensors = load(block)
        return OrderedDict((key, tensors[key]) for key in read_names(block))
    except (
        SafetensorError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RuntimeError,
        ArithmeticError,
    ) as error:
        reason = ascii(str(error))[1:-1][:_MAX_REASON]
        raise UnreadableMessage(f"a block of weights cannot be read ({reason})") from error


def read_names(block: bytes) -> list[str]:
    """The names of the tensors in a block, in their original order."""
    size = int.from_bytes(block[:8], "little")
    order: list[str] = json.loads(json.loads(block[8 : 8 + size])["__metadata__"][_ORDER])
    return order


def decode_weights_or_error(block: bytes) -> OrderedDict[str, Tensor] | UnreadableMessage:
    """The weights; if they cannot be read, the error in their place, so that the message keeps its sender."""
    try:
        return decode_weights(block)
    except UnreadableMessage as error:
        return error


def encode(params: Mapping[str, Any]) -> bytes:
    """A message's parameters: length of the header (4 bytes), header, weights (a mapping, or an encoded block)."""
    header = json.dumps({key: value for key, value in params.items() if key != WEIGHTS}).encode()
    weights = params.get(WEIGHTS)
    block = b"" if weights is None else weights if isinstance(weights, bytes) else encode_weights(weights)
    return len(header).to_bytes(4, "little") + header + block


def decode(raw: bytes) -> Message:
    """The message that `encode` has encoded."""
    size = int.from_bytes(raw[:4], "little")
    if size > MAX_HEADER_BYTES:
        raise UnreadableMessage(f"{len(raw)} bytes are not a message: their header would have {size} bytes")
    try:
        params = json.loads(raw[4 : 4 + size])
    except (ValueError, RecursionError) as error:
        raise UnreadableMessage(f"{len(raw)} bytes are not a message") from error
    if not isinstance(params, dict):
        raise UnreadableMessage(f"{len(raw)} bytes are not a message")
    if len(raw) > 4 + size:
        params[WEIGHTS] = decode_weights_or_error(raw[4 + size :])
    return make_message(params)


def make_message(params: dict[str, Any]) -> Message:
    """FedML's message with these parameters."""
    message = Message()
    try:
        message.init_from_json_object(params)
    except (KeyError, TypeError, AttributeError) as error:
        raise UnreadableMessage("a message has no type, sender or receiver") from error
    return message
