"""Whatever bytes arrive: they are a usable answer, or refused with a short reason, and nothing else happens."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pytest
import torch

from mrtf_fedml.fedml_bridge.cross_silo import protocol
from mrtf_fedml.fedml_bridge.cross_silo.expected_weights import ExpectedWeights, Malformed
from mrtf_fedml.fedml_bridge.cross_silo.transports.codec import (
    WEIGHTS,
    UnreadableMessage,
    decode,
    encode,
    encode_weights,
)
from mrtf_fedml.fedml_bridge.messages import DEVIATION, EXTRA, LOSS, MEAN, SAMPLES, update_of
from mrtf_fedml.rounds.round import _fault

MODEL = {"a.weight": torch.randn(3, 2), "a.bias": torch.randn(3), "steps": torch.tensor(0)}
EXPECTED = ExpectedWeights(MODEL)
MUTATIONS = 4000


def outcome(raw: bytes) -> str:
    """What a server makes of the bytes: `used`, or the reason why not; anything else is raised."""
    try:
        message = decode(raw)
        assert len(protocol.incarnation_of(message)) <= 64
        protocol.sender_of(message), protocol.status_of(message), protocol.number_of(message)
        protocol.round_of(message)
        samples, payload = protocol.samples_of(message), protocol.weights_in(message)
        EXPECTED.check(payload)
        return _fault(update_of(1, samples, payload)) or "used"
    except (UnreadableMessage, Malformed) as error:
        reason = str(error)
    assert len(reason) < 300, "a stranger's text is not repeated at length"
    assert reason.isprintable()
    return reason


def answered(block: Any, **facts: Any) -> bytes:
    params = protocol.answer("incarnation", 2, 0, 10, None).get_params()
    return encode({**params, WEIGHTS: block, **facts})


def beside(**tensors: torch.Tensor) -> bytes:
    return answered(encode_weights({**MODEL, **tensors}))


def block(header: Any, data: bytes = b"", size: int | None = None) -> bytes:
    """A safetensors block as no library writes it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def one_tensor(**entry: Any) -> bytes:
    order = {"weights_order": json.dumps(["x"])}
    whole = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **entry}
    return answered(block({"__metadata__": order, "x": whole}, b"\0" * 4))


HUGE = 2**62
UNREADABLE = {
    "no header": answered(b"\0"),
    "header longer than all": answered(block(b"{}", size=2**63)),
    "header cut": answered(encode_weights(MODEL)[:20]),
    "header is a list": answered(block(b"[]")),
    "deep header": answered(block(b'{"a":' * 5000 + b"1" + b"}" * 5000)),
    "deep order": answered(block({"__metadata__": {"weights_order": "[" * 100_000}})),
    "order is a number": answered(block({"__metadata__": {"weights_order": "7"}})),
    "order of lists": answered(block({"__metadata__": {"weights_order": '[["a"]]'}})),
    "no metadata": answered(block({"__metadata__": None})),
    "unknown type, told at length": one_tensor(dtype="Q" * 100_000),
    "type of half a byte": one_tensor(dtype="F4", shape=[8], data_offsets=[0, 4]),
    "type that torch has not": one_tensor(dtype="F8_E8M0", shape=[4]),
    "negative shape": one_tensor(shape=[-1]),
    "broken shape": one_tensor(shape=[1.5]),
    "no shape": one_tensor(shape=None),
    "shape beyond counting": one_tensor(shape=[HUGE, HUGE]),
    "empty shape beyond counting": one_tensor(shape=[0, 2**63 - 1, 2**63 - 1], data_offsets=[0, 0]),
    "offsets beyond the end": one_tensor(data_offsets=[0, HUGE]),
    "offsets backwards": one_tensor(data_offsets=[4, 0]),
    "overlapping offsets": answered(
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
    "its number of samples is a far too large number": answered(encode_weights(MODEL), num_samples=10**4000),
    "its number of samples is a float": answered(encode_weights(MODEL), num_samples=float("nan")),
    "its number of samples is a bool": answered(encode_weights(MODEL), num_samples=True),
    "its number of samples is 0": answered(encode_weights(MODEL), num_samples=0),
    "its round is a far too large number": answered(encode_weights(MODEL), round_idx=10**4000),
    "its round is -1": answered(encode_weights(MODEL), round_idx=-1),
    "its loss is 1e+308": beside(**{LOSS: torch.tensor(1e308, dtype=torch.float64)}),
    "its loss is not finite": beside(**{LOSS: torch.tensor(float("nan"))}),
    "its count of samples": beside(**{SAMPLES: torch.tensor(1e300, dtype=torch.float64)}),
    "its scale of features is one half of one": beside(**{MEAN: torch.zeros(2)}),
    "its scale of features is no list": beside(**{MEAN: torch.zeros(2), DEVIATION: torch.tensor(float("inf"))}),
    "is torch.complex64 of 1": beside(**{EXTRA + "x": torch.zeros(2, dtype=torch.complex64)}),
    "is torch.float8_e5m2 of 1": beside(**{EXTRA + "x": torch.zeros(2).to(torch.float8_e5m2)}),
    "of 65 dimensions": beside(**{EXTRA + "x": torch.zeros([1] * 65)}),
    "what it sends beside 'a.bias' is of shape (1,)": beside(**{EXTRA + "a.bias": torch.zeros(1)}),
    "beside 'a.weight' is of shape (1,)": beside(**{EXTRA + "refinery/base/a.weight": torch.zeros(1)}),
    "the unknown '\\x00'": beside(**{"\0": torch.zeros(1)}),
    "its 'a.bias' is torch.float64": beside(**{"a.bias": torch.zeros(3, dtype=torch.float64)}),
}


def test_an_honest_answer_is_used() -> None:
    assert outcome(beside(**{LOSS: torch.tensor(0.5), EXTRA + "mine": torch.zeros(2, 2)})) == "used"


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_block_that_is_none_is_refused_in_a_few_words(name: str) -> None:
    assert outcome(UNREADABLE[name]).startswith("a block of weights cannot be read")


@pytest.mark.parametrize("reason", MALFORMED)
def test_an_answer_that_breaks_the_form_is_refused_by_name(reason: str) -> None:
    assert reason in outcome(MALFORMED[reason])


def test_facts_longer_than_any_are_not_read() -> None:
    params = protocol.answer("incarnation", 2, 0, 10, None).get_params()
    assert "no message of ours" in outcome(encode({**params, "reason": "x" * 2**20}))
    long = decode(encode({**params, "incarnation": "x" * 65, "number": 10**400}))
    assert (protocol.incarnation_of(long), protocol.number_of(long)) == ("", -1), "nobody is remembered by these"


def test_bytes_that_were_changed_at_random_never_do_more_than_be_refused() -> None:
    chance = random.Random(0)
    honest = beside(**{LOSS: torch.tensor(0.5), EXTRA + "mine": torch.zeros(2, 2)})
    refused = 0
    for _ in range(MUTATIONS):
        raw = bytearray(honest)
        for _ in range(chance.choice([1, 1, 2, 5])):
            place = chance.randrange(len(raw))
            kind = chance.random()
            if kind < 0.6:
                raw[place] = chance.randrange(256)
            elif kind < 0.8:
                del raw[place : place + chance.randrange(1, 9)]
            else:
                raw[place:place] = chance.randbytes(chance.randrange(1, 9))
        refused += outcome(bytes(raw)) != "used"
    # Most of the bytes are text, whose changes show; a changed number is another number.
    assert MUTATIONS / 2 < refused < MUTATIONS
