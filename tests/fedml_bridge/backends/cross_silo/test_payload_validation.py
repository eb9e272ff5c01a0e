"""Any received bytes are a usable update, or are rejected with a short reason, and nothing else happens."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pytest
import torch

from mrtf_fedml.fedml_bridge.backends.cross_silo import protocol
from mrtf_fedml.fedml_bridge.backends.cross_silo.payload_validation import PayloadSchema
from mrtf_fedml.fedml_bridge.backends.cross_silo.protocol import InvalidPayload
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.codec import (
    WEIGHTS,
    UnreadableMessage,
    decode,
    encode,
    encode_weights,
)
from mrtf_fedml.fedml_bridge.messages import DEVIATION, LOSS, MEAN, PAYLOAD, SAMPLES, unpack_update
from mrtf_fedml.training.round import find_invalid_number

MODEL = {"a.weight": torch.randn(3, 2), "a.bias": torch.randn(3), "steps": torch.tensor(0)}
SCHEMA = PayloadSchema(MODEL)
MUTATIONS = 4000


def outcome(raw: bytes) -> str:
    """`used`, or the reason why a server rejects the bytes; other exceptions are raised."""
    try:
        message = decode(raw)
        assert len(protocol.get_incarnation(message)) <= 64
        protocol.get_sender(message), protocol.get_status(message), protocol.get_sequence_number(message)
        protocol.get_round(message)
        samples, payload = protocol.get_num_samples(message), protocol.get_weights(message)
        SCHEMA.validate(payload)
        return find_invalid_number(unpack_update(1, samples, payload)) or "used"
    except (UnreadableMessage, InvalidPayload) as error:
        reason = str(error)
    assert len(reason) < 300, "a received string is cut"
    assert reason.isprintable()
    return reason


def update_bytes(block: Any, **params: Any) -> bytes:
    message = protocol.update_message("incarnation", 2, 0, 10, None).get_params()
    return encode({**message, WEIGHTS: block, **params})


def with_entries(**tensors: torch.Tensor) -> bytes:
    return update_bytes(encode_weights({**MODEL, **tensors}))


def block(header: Any, data: bytes = b"", size: int | None = None) -> bytes:
    """A safetensors block with an arbitrary header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def one_tensor(**entry: Any) -> bytes:
    order = {"weights_order": json.dumps(["x"])}
    whole = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **entry}
    return update_bytes(block({"__metadata__": order, "x": whole}, b"\0" * 4))


HUGE = 2**62
UNREADABLE = {
    "no header": update_bytes(b"\0"),
    "header longer than all": update_bytes(block(b"{}", size=2**63)),
    "header cut": update_bytes(encode_weights(MODEL)[:20]),
    "header is a list": update_bytes(block(b"[]")),
    "deep header": update_bytes(block(b'{"a":' * 5000 + b"1" + b"}" * 5000)),
    "deep order": update_bytes(block({"__metadata__": {"weights_order": "[" * 100_000}})),
    "order is a number": update_bytes(block({"__metadata__": {"weights_order": "7"}})),
    "order of lists": update_bytes(block({"__metadata__": {"weights_order": '[["a"]]'}})),
    "no metadata": update_bytes(block({"__metadata__": None})),
    "unknown type with a long name": one_tensor(dtype="Q" * 100_000),
    "type of half a byte": one_tensor(dtype="F4", shape=[8], data_offsets=[0, 4]),
    "type that torch has not": one_tensor(dtype="F8_E8M0", shape=[4]),
    "negative shape": one_tensor(shape=[-1]),
    "broken shape": one_tensor(shape=[1.5]),
    "no shape": one_tensor(shape=None),
    "shape beyond counting": one_tensor(shape=[HUGE, HUGE]),
    "empty shape beyond counting": one_tensor(shape=[0, 2**63 - 1, 2**63 - 1], data_offsets=[0, 0]),
    "offsets beyond the end": one_tensor(data_offsets=[0, HUGE]),
    "offsets backwards": one_tensor(data_offsets=[4, 0]),
    "overlapping offsets": update_bytes(
        block(
            {
                "__metadata__": {"weights_order": "[]"},
                "x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                "y": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            },
            b"\0" * 4,
        )
    ),
}
MALFORMED = {
    "its number of samples is far too large": update_bytes(encode_weights(MODEL), num_samples=10**4000),
    "its number of samples is a float": update_bytes(encode_weights(MODEL), num_samples=float("nan")),
    "its number of samples is a bool": update_bytes(encode_weights(MODEL), num_samples=True),
    "its number of samples is 0": update_bytes(encode_weights(MODEL), num_samples=0),
    "its round is far too large": update_bytes(encode_weights(MODEL), round_idx=10**4000),
    "its round is -1": update_bytes(encode_weights(MODEL), round_idx=-1),
    "its loss is 1e+308": with_entries(**{LOSS: torch.tensor(1e308, dtype=torch.float64)}),
    "its loss is not finite": with_entries(**{LOSS: torch.tensor(float("nan"))}),
    "its sample count": with_entries(**{SAMPLES: torch.tensor(1e300, dtype=torch.float64)}),
    "its feature scale lacks": with_entries(**{MEAN: torch.zeros(2)}),
    "its feature scale is not finite": with_entries(**{MEAN: torch.zeros(2), DEVIATION: torch.tensor(float("inf"))}),
    "is torch.complex64 with 1": with_entries(**{PAYLOAD + "x": torch.zeros(2, dtype=torch.complex64)}),
    "is torch.float8_e5m2 with 1": with_entries(**{PAYLOAD + "x": torch.zeros(2).to(torch.float8_e5m2)}),
    "with 65 dimensions": with_entries(**{PAYLOAD + "x": torch.zeros([1] * 65)}),
    "its payload 'a.bias' has shape (1,)": with_entries(**{PAYLOAD + "a.bias": torch.zeros(1)}),
    "'refinery/base/a.weight' has shape (1,)": with_entries(**{PAYLOAD + "refinery/base/a.weight": torch.zeros(1)}),
    "the unknown '\\x00'": with_entries(**{"\0": torch.zeros(1)}),
    "its 'a.bias' is torch.float64": with_entries(**{"a.bias": torch.zeros(3, dtype=torch.float64)}),
}


def test_valid_update_is_used() -> None:
    assert outcome(with_entries(**{LOSS: torch.tensor(0.5), PAYLOAD + "mine": torch.zeros(2, 2)})) == "used"


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_block_is_rejected_with_short_reason(name: str) -> None:
    assert outcome(UNREADABLE[name]).startswith("a block of weights cannot be read")


@pytest.mark.parametrize("reason", MALFORMED)
def test_invalid_update_is_rejected_with_reason(reason: str) -> None:
    assert reason in outcome(MALFORMED[reason])


def test_header_that_is_too_long_is_rejected() -> None:
    params = protocol.update_message("incarnation", 2, 0, 10, None).get_params()
    assert "not a message" in outcome(encode({**params, "reason": "x" * 2**20}))
    long = decode(encode({**params, "incarnation": "x" * 65, "number": 10**400}))
    assert (protocol.get_incarnation(long), protocol.get_sequence_number(long)) == ("", -1), "they are not remembered"


def test_random_changes_of_bytes_raise_no_other_error() -> None:
    rng = random.Random(0)
    valid = with_entries(**{LOSS: torch.tensor(0.5), PAYLOAD + "mine": torch.zeros(2, 2)})
    rejected = 0
    for _ in range(MUTATIONS):
        raw = bytearray(valid)
        for _ in range(rng.choice([1, 1, 2, 5])):
            place = rng.randrange(len(raw))
            kind = rng.random()
            if kind < 0.6:
                raw[place] = rng.randrange(256)
            elif kind < 0.8:
                del raw[place : place + rng.randrange(1, 9)]
            else:
                raw[place:place] = rng.randbytes(rng.randrange(1, 9))
        rejected += outcome(bytes(raw)) != "used"
    # Most bytes are text, where a change is detected; a changed number is another number.
    assert MUTATIONS / 2 < rejected < MUTATIONS
