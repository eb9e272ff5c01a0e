"""The twins compute what their .mnn files compute, and no bit is lost on the way between the two."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fedml.cross_device.server_mnn.utils import read_mnn_as_tensor_dict
from fedml.model.mobile.mnn_lenet import create_mnn_lenet5_model
from fedml.model.mobile.mnn_resnet import create_mnn_resnet20_model

from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.cross_device.device_models import DEVICE_MODELS
from mrtf_fedml.fedml_bridge.cross_device.exchange import Exchange, UnusableModel
from mrtf_fedml.fedml_bridge.cross_device.graphs import engine
from tests.fedml_bridge.cross_device.engine import mnns_logits, random_weights

FEDMLS_OWN = {"lenet": create_mnn_lenet5_model, "resnet20": create_mnn_resnet20_model}


@pytest.mark.parametrize("name", DEVICE_MODELS)
def test_mnn_answers_as_the_twin_that_wrote_the_file(name: str, tmp_path: Path) -> None:
    for classes in (2, 10, 62):
        exchange = Exchange(name, classes)
        weights = random_weights(exchange.twin, seed=classes)
        file = tmp_path / "model.mnn"
        file.write_bytes(exchange.to_file(weights))
        exchange.twin.load_state_dict(weights)
        inputs = torch.randn(6, *exchange.twin.input_shape, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            expected = exchange.twin(inputs)
        torch.testing.assert_close(mnns_logits(file, inputs), expected, atol=1e-4, rtol=0)
        read = exchange.to_weights(file.read_bytes())
        assert list(read) == list(weights)
        assert all(torch.equal(read[key], weights[key]) for key in weights)


@pytest.mark.parametrize("name", DEVICE_MODELS)
def test_the_twin_answers_as_the_file_that_fedml_makes(name: str, tmp_path: Path) -> None:
    engine()
    file = tmp_path / "fedml.mnn"
    FEDMLS_OWN[name](str(file))
    exchange = Exchange(name, 10)
    exchange.twin.load_state_dict(exchange.to_weights(file.read_bytes()))
    inputs = torch.rand(4, *exchange.twin.input_shape, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        answer = exchange.twin(inputs)
    torch.testing.assert_close(answer, mnns_logits(file, inputs), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", DEVICE_MODELS)
def test_a_file_saved_outside_training_reads_the_same(name: str, tmp_path: Path) -> None:
    """MNN then puts kernels inside their convolutions, and gives those without a bias one of zeros."""
    exchange = Exchange(name, 3)
    weights = random_weights(exchange.twin, seed=3)
    ours, theirs = tmp_path / "ours.mnn", tmp_path / "theirs.mnn"
    ours.write_bytes(exchange.to_file(weights))
    expr = engine().expr
    inputs, outputs = expr.get_inputs_and_outputs(expr.load_as_dict(str(ours)))
    module = engine().nn.load_module(list(inputs.values()), list(outputs.values()), True)
    module.train(False)
    expr.save([module.forward(expr.placeholder([1, *exchange.twin.input_shape], expr.NCHW))], str(theirs))
    assert theirs.read_bytes() != ours.read_bytes()
    read = exchange.to_weights(theirs.read_bytes())
    assert all(torch.equal(read[key], weights[key]) for key in weights)


def test_fedmls_own_helper_finds_the_parameters_of_our_file(tmp_path: Path) -> None:
    exchange = Exchange("lenet", 4)
    file = tmp_path / "model.mnn"
    file.write_bytes(exchange.to_file(exchange.twin.state_dict()))
    found = read_mnn_as_tensor_dict(str(file))
    assert sum(value.numel() for value in found.values()) == sum(p.numel() for p in exchange.twin.parameters())


def test_another_network_is_refused_and_named() -> None:
    lenet, resnet = Exchange("lenet", 10), Exchange("resnet20", 10)
    cases = (
        (lenet, resnet.to_file(resnet.twin.state_dict()), "where conv1.weight (20, 1, 5, 5) is expected"),
        (resnet, lenet.to_file(lenet.twin.state_dict()), "where conv1.weight (16, 3, 3, 3) is expected"),
        (Exchange("lenet", 11), lenet.to_file(lenet.twin.state_dict()), "where fc2.weight (11, 500) is expected"),
    )
    for exchange, content, words in cases:
        with pytest.raises(UnusableModel) as refusal:
            exchange.to_weights(content)
        assert words in str(refusal.value)


def test_an_unknown_network_is_a_users_error() -> None:
    with pytest.raises(UserError, match="'lenett', which no device knows"):
        Exchange("lenett", 10)
