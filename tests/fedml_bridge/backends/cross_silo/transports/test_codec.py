"""Messages as bytes and back."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch

from mrtf_fedml.fedml_bridge.backends.cross_silo import protocol
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.codec import (
    UnreadableMessage,
    decode,
    decode_weights,
    encode,
    encode_weights,
)
from mrtf_fedml.fedml_bridge.messages import LOSS
from tests.fedml_bridge.payloads import with_loss


def test_decode_of_encoded_message_gives_equal_bits() -> None:
    shared = torch.randn(3, 4)
    weights = OrderedDict(
        z=shared, a=shared.t(), counter=torch.tensor(7), flag=torch.tensor([True]), half=torch.randn(2).bfloat16()
    )
    message = decode(encode(protocol.update_message("incarnation", 2, 5, 17, with_loss(weights, 0.1)).get_params()))
    assert (protocol.get_round(message), protocol.get_num_samples(message), message.get_sender_id()) == (5, 17, 2)
    decoded = protocol.get_weights(message)
    assert list(decoded) == [*weights, LOSS]
    assert all(torch.equal(decoded[key], weights[key]) and decoded[key].dtype == weights[key].dtype for key in weights)
    assert float(decoded[LOSS]) == 0.1


@pytest.mark.parametrize("raw", [b"", b"\x80\x04\x95", b"\xff\xff\xff\xff{}", encode({"a": 1}), encode({}) + b"xx"])
def test_decode_of_other_bytes_is_an_error(raw: bytes) -> None:
    with pytest.raises(UnreadableMessage):
        decode(raw)
    with pytest.raises(UnreadableMessage):
        decode_weights(raw)


def test_decode_weights_of_truncated_block_is_an_error() -> None:
    with pytest.raises(UnreadableMessage):
        decode_weights(encode_weights({"w": torch.zeros(100)})[:-4])
