"""Whatever bytes a device sends, reading them ends in weights or in one sentence."""

from __future__ import annotations

import random
import struct

import pytest

from mrtf_fedml.fedml_bridge.cross_device.exchange import Exchange, UnusableModel
from mrtf_fedml.fedml_bridge.cross_device.flatbuffer import Table


@pytest.fixture(scope="module")
def lenet() -> Exchange:
    return Exchange("lenet", 10)


@pytest.fixture(scope="module")
def file(lenet: Exchange) -> bytes:
    return lenet.to_file(lenet.twin.state_dict())


def test_what_is_no_model_is_refused(lenet: Exchange, file: bytes) -> None:
    noise = random.Random(0).randbytes
    cases = {
        b"": "the file is empty",
        b"<html>no such key</html>": "the file is no MNN model",
        noise(50_000): "the file is no MNN model",
        bytes(5000): "the file is no MNN model",
        b"\xff" * 5000: "the file is no MNN model",
        file + bytes(3 * len(file)): "have at most",
    }
    for content, words in cases.items():
        with pytest.raises(UnusableModel, match=words):
            lenet.to_weights(content)


def test_a_truncated_model_is_refused(lenet: Exchange, file: bytes) -> None:
    # The last two bytes only fill it up.
    for length in [*range(1, 200, 7), *range(200, len(file), len(file) // 60), *range(len(file) - 200, len(file) - 2)]:
        with pytest.raises(UnusableModel):
            lenet.to_weights(file[:length])


def test_flipped_bits_give_weights_or_a_sentence(lenet: Exchange, file: bytes) -> None:
    choose = random.Random(1)
    refused = 0
    for _ in range(400):
        damaged = bytearray(file)
        for _ in range(choose.choice((1, 4, 40))):
            # The structure lies at both ends, the weights between them.
            place = choose.choice((choose.randrange(3000), -1 - choose.randrange(3000)))
            damaged[place] ^= 1 << choose.randrange(8)
        try:
            weights = lenet.to_weights(bytes(damaged))
        except UnusableModel:
            refused += 1
        else:
            assert {key: value.shape for key, value in weights.items()} == {
                key: value.shape for key, value in lenet.twin.state_dict().items()
            }
    assert refused > 50


def test_lies_that_crash_mnns_own_reader_are_refused(lenet: Exchange, file: bytes) -> None:
    operations = Table.root(file).tables(3, at_most=1000)
    kernel = operations[2].table(2)
    assert kernel is not None
    dimensions = kernel._vector(0, 4)[0]
    inputs, outputs = operations[4]._vector(0, 4)[0], operations[4]._vector(4, 4)[0]
    lies = {
        "has shape (20000000, 1, 5, 5) and 500 values": (dimensions, 20_000_000),
        "has shape (-5, 1, 5, 5) and 500 values": (dimensions, -5),
        "nothing makes tensor 1000000": (inputs + 4, 1_000_000),
        "2 outputs": (outputs, 1 << 30),
        "a parameter feeds an operation of type 999": (operations[4].place(5), 999),
    }
    for words, (place, value) in lies.items():
        lie = bytearray(file)
        assert place is not None
        struct.pack_into("<i", lie, place, value)
        with pytest.raises(UnusableModel) as refusal:
            lenet.to_weights(bytes(lie))
        assert words in str(refusal.value)


def test_a_network_that_needs_itself_is_read_to_the_end(lenet: Exchange, file: bytes) -> None:
    operations = Table.root(file).tables(3, at_most=1000)
    circle = bytearray(file)
    # The first convolution takes what the last layer before the softmax makes.
    struct.pack_into("<i", circle, operations[4]._vector(0, 4)[0], 22)
    with pytest.raises(UnusableModel):
        lenet.to_weights(bytes(circle))
