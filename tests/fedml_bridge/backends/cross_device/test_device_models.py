"""PyTorch models compute what their .mnn files compute, and the conversion between the two is exact."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fedml.cross_device.server_mnn.utils import read_mnn_as_tensor_dict
from fedml.model.mobile.mnn_lenet import create_mnn_lenet5_model
from fedml.model.mobile.mnn_resnet import create_mnn_resnet20_model

from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.backends.cross_device.device_models import (
    DEVICE_MODELS,
    ModelConverter,
    UnusableModel,
    import_mnn,
)
from tests.fedml_bridge.backends.cross_device.mnn_reference import mnn_logits, random_weights

FEDML_MODELS = {"lenet": create_mnn_lenet5_model, "resnet20": create_mnn_resnet20_model}


@pytest.mark.parametrize("name", DEVICE_MODELS)
def test_mnn_and_torch_give_equal_logits_for_our_file(name: str, tmp_path: Path) -> None:
    for classes in (2, 10, 62):
        converter = ModelConverter(name, classes)
        weights = random_weights(converter.torch_model, seed=classes)
        file = tmp_path / "model.mnn"
        file.write_bytes(converter.to_mnn(weights))
        converter.torch_model.load_state_dict(weights)
        inputs = torch.randn(6, *converter.torch_model.input_shape, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            expected = converter.torch_model(inputs)
        torch.testing.assert_close(mnn_logits(file, inputs), expected, atol=1e-4, rtol=0)
        read = converter.to_state_dict(file.read_bytes())
        assert list(read) == list(weights)
        assert all(torch.equal(read[key], weights[key]) for key in weights)


@pytest.mark.parametrize("name", DEVICE_MODELS)
def test_torch_and_mnn_give_equal_logits_for_the_file_of_fedml(name: str, tmp_path: Path) -> None:
    import_mnn()
    file = tmp_path / "fedml.mnn"
    FEDML_MODELS[name](str(file))
    converter = ModelConverter(name, 10)
    converter.torch_model.load_state_dict(converter.to_state_dict(file.read_bytes()))
    inputs = torch.rand(4, *converter.torch_model.input_shape, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        logits = converter.torch_model(inputs)
    torch.testing.assert_close(logits, mnn_logits(file, inputs), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", DEVICE_MODELS)
def test_file_saved_outside_training_gives_equal_weights(name: str, tmp_path: Path) -> None:
    """MNN then puts kernels inside their convolutions, and gives those without a bias one of zeros."""
    converter = ModelConverter(name, 3)
    weights = random_weights(converter.torch_model, seed=3)
    ours, theirs = tmp_path / "ours.mnn", tmp_path / "theirs.mnn"
    ours.write_bytes(converter.to_mnn(weights))
    expr = import_mnn().expr
    inputs, outputs = expr.get_inputs_and_outputs(expr.load_as_dict(str(ours)))
    module = import_mnn().nn.load_module(list(inputs.values()), list(outputs.values()), True)
    module.train(False)
    expr.save([module.forward(expr.placeholder([1, *converter.torch_model.input_shape], expr.NCHW))], str(theirs))
    assert theirs.read_bytes() != ours.read_bytes()
    read = converter.to_state_dict(theirs.read_bytes())
    assert all(torch.equal(read[key], weights[key]) for key in weights)


def test_fedml_helper_reads_all_parameters_of_our_file(tmp_path: Path) -> None:
    converter = ModelConverter("lenet", 4)
    file = tmp_path / "model.mnn"
    file.write_bytes(converter.to_mnn(converter.torch_model.state_dict()))
    found = read_mnn_as_tensor_dict(str(file))
    assert sum(value.numel() for value in found.values()) == sum(p.numel() for p in converter.torch_model.parameters())


def test_file_of_another_network_is_rejected() -> None:
    lenet, resnet = ModelConverter("lenet", 10), ModelConverter("resnet20", 10)
    cases = (
        (lenet, resnet.to_mnn(resnet.torch_model.state_dict()), "where conv1.weight (20, 1, 5, 5) is expected"),
        (resnet, lenet.to_mnn(lenet.torch_model.state_dict()), "where conv1.weight (16, 3, 3, 3) is expected"),
        (
            ModelConverter("lenet", 11),
            lenet.to_mnn(lenet.torch_model.state_dict()),
            "where fc2.weight (11, 500) is expected",
        ),
    )
    for converter, content, words in cases:
        with pytest.raises(UnusableModel) as error:
            converter.to_state_dict(content)
        assert words in str(error.value)


def test_unknown_model_is_an_error() -> None:
    with pytest.raises(UserError, match=r"model_args\.model is 'lenett'"):
        ModelConverter("lenett", 10)
