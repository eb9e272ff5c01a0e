"""Any bytes of a device give weights or one error message."""

from __future__ import annotations

import random
import struct

import pytest

from mrtf_fedml.fedml_bridge.backends.cross_device.device_models import ModelConverter, UnusableModel
from mrtf_fedml.fedml_bridge.backends.cross_device.mnn_file import Table


@pytest.fixture(scope="module")
def lenet() -> ModelConverter:
    return ModelConverter("lenet", 10)


@pytest.fixture(scope="module")
def file(lenet: ModelConverter) -> bytes:
    return lenet.to_mnn(lenet.torch_model.state_dict())


def test_bytes_that_are_not_a_model_are_rejected(lenet: ModelConverter, file: bytes) -> None:
    noise = random.Random(0).randbytes
    cases = {
        b"": "the file is empty",
        b"<html>no such key</html>": "the file is not an MNN model",
        noise(50_000): "the file is not an MNN model",
        bytes(5000): "the file is not an MNN model",
        b"\xff" * 5000: "the file is not an MNN model",
        file + bytes(3 * len(file)): "have at most",
    }
    for content, words in cases.items():
        with pytest.raises(UnusableModel, match=words):
            lenet.to_state_dict(content)


def test_truncated_file_is_rejected(lenet: ModelConverter, file: bytes) -> None:
    # The last two bytes are padding.
    for length in [*range(1, 200, 7), *range(200, len(file), len(file) // 60), *range(len(file) - 200, len(file) - 2)]:
        with pytest.raises(UnusableModel):
            lenet.to_state_dict(file[:length])


def test_flipped_bits_give_weights_or_an_error(lenet: ModelConverter, file: bytes) -> None:
    rng = random.Random(1)
    rejected = 0
    for _ in range(400):
        damaged = bytearray(file)
        for _ in range(rng.choice((1, 4, 40))):
            # The structure is at both ends, the weights between them.
            place = rng.choice((rng.randrange(3000), -1 - rng.randrange(3000)))
            damaged[place] ^= 1 << rng.randrange(8)
        try:
            weights = lenet.to_state_dict(bytes(damaged))
        except UnusableModel:
            rejected += 1
        else:
            assert {key: value.shape for key, value in weights.items()} == {
                key: value.shape for key, value in lenet.torch_model.state_dict().items()
            }
    assert rejected > 50


def test_false_sizes_and_indices_are_rejected(lenet: ModelConverter, file: bytes) -> None:
    operations = Table.root(file).tables(3, max_count=1000)
    kernel = operations[2].table(2)
    assert kernel is not None
    dimensions = kernel._vector(0, 4)[0]
    inputs, outputs = operations[4]._vector(0, 4)[0], operations[4]._vector(4, 4)[0]
    changes = {
        "has shape (20000000, 1, 5, 5) and 500 values": (dimensions, 20_000_000),
        "has shape (-5, 1, 5, 5) and 500 values": (dimensions, -5),
        "nothing produces tensor 1000000": (inputs + 4, 1_000_000),
        "2 outputs": (outputs, 1 << 30),
        "a parameter is an input of an operation of type 999": (operations[4].position(5), 999),
    }
    for words, (place, value) in changes.items():
        changed = bytearray(file)
        assert place is not None
        struct.pack_into("<i", changed, place, value)
        with pytest.raises(UnusableModel) as error:
            lenet.to_state_dict(bytes(changed))
        assert words in str(error.value)


def test_cyclic_graph_is_rejected(lenet: ModelConverter, file: bytes) -> None:
    operations = Table.root(file).tables(3, max_count=1000)
    circle = bytearray(file)
    # The first convolution takes what the last layer before the softmax makes.
    struct.pack_into("<i", circle, operations[4]._vector(0, 4)[0], 22)
    with pytest.raises(UnusableModel):
        lenet.to_state_dict(bytes(circle))
