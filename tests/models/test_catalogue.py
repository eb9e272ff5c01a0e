from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import nn

from mrtf_fedml.config import ModelSettings
from mrtf_fedml.errors import UserError
from mrtf_fedml.models import (
    MODELS,
    ConvNet,
    FeatureExtractor,
    LeNet,
    MLPNet,
    create_model,
)
from mrtf_fedml.models.catalogue import create_torchvision_model, create_user_model


@pytest.mark.parametrize(("name", "kind"), [("mlp", MLPNet), ("lenet", LeNet), ("convnet", ConvNet)])
def test_create_model_by_name(name, kind):
    model = create_model(ModelSettings(model=name), [1, 8, 8], classes=3, seed=0)
    assert type(model) is kind
    assert model(torch.randn(2, 1, 8, 8)).shape == (2, 3)


def test_mlp_is_narrower_on_tables_than_on_images():
    widths = [
        create_model(ModelSettings(model="mlp"), shape, classes=3, seed=0).hidden[1].out_features
        for shape in ((16,), (1, 4, 4))
    ]
    assert widths == [256, 1024]


def test_create_model_passes_hidden_size_to_mlp():
    model = create_model(ModelSettings(model="mlp", hidden_size=6), (4,), classes=3, seed=0)
    assert [tuple(weights.shape) for weights in model.parameters() if weights.dim() == 2] == [
        (6, 4),
        (6, 6),
        (128, 6),
        (3, 128),
    ]


def test_create_model_passes_feature_size_to_mlp():
    model = create_model(ModelSettings(model="mlp", feature_size=2), (4,), classes=3, seed=0)
    assert model.classifier.in_features == 2


def test_create_model_with_equal_seed_gives_equal_weights():
    settings = ModelSettings(model="lenet")
    first = create_model(settings, (1, 8, 8), 10, seed=3).state_dict()
    torch.rand(17)
    second = create_model(settings, (1, 8, 8), 10, seed=3).state_dict()
    other = create_model(settings, (1, 8, 8), 10, seed=4).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not any(torch.equal(first[key], other[key]) for key in first)


def test_create_model_keeps_global_random_state():
    before = torch.random.get_rng_state()
    create_model(ModelSettings(), (4,), 2, seed=1)
    assert torch.equal(before, torch.random.get_rng_state())


def test_create_model_uses_added_entry(monkeypatch):
    monkeypatch.setitem(MODELS, "line", lambda settings, shape, classes: nn.Linear(shape[0], classes))
    assert create_model(ModelSettings(model="line"), (4,), 2, seed=1).weight.shape == (2, 4)


def test_create_model_with_unknown_name_suggests_nearest():
    with pytest.raises(UserError, match=r"model_args\.model 'convnt' is unknown; did you mean 'convnet'"):
        create_model(ModelSettings(model="convnt"), (1, 8, 8), 10, seed=0)


@pytest.mark.parametrize("name", ["lenet", "convnet"])
@pytest.mark.parametrize("shape", [(64,), (8, 8)])
def test_convolutional_net_rejects_samples_that_are_not_images(name, shape):
    with pytest.raises(UserError, match="use `model: mlp`"):
        create_model(ModelSettings(model=name), shape, 10, seed=0)


def test_create_model_rejects_one_class_and_empty_samples():
    with pytest.raises(UserError, match="at least two classes"):
        create_model(ModelSettings(), (4,), 1, seed=0)
    with pytest.raises(UserError, match="is empty"):
        create_model(ModelSettings(), (1, 0, 8), 2, seed=0)


def test_torchvision_model_receives_grey_images_as_rgb(caplog):
    with caplog.at_level(logging.INFO, logger="mrtf_fedml"):
        model = create_torchvision_model("torchvision:resnet18", (1, 32, 32), 7)
    assert caplog.text.count("receives the grey channel three times") == 1
    inputs = torch.randn(2, 1, 32, 32)
    model.eval()
    with torch.no_grad():
        assert model(inputs).shape == (2, 7)
        torch.testing.assert_close(model(inputs), model(inputs.repeat(1, 3, 1, 1)))
    assert FeatureExtractor(model, None, inputs).layer == "fc"
    assert next(iter(model.state_dict())) == "conv1.weight"


def test_torchvision_model_receives_rgb_images_unchanged():
    model = create_torchvision_model("torchvision:squeezenet1_1", (3, 32, 32), 7)
    assert not model._forward_pre_hooks
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 7)


def test_torchvision_model_has_no_auxiliary_head():
    model = create_torchvision_model("torchvision:googlenet", (3, 32, 32), 4).train()
    assert isinstance(model(torch.randn(2, 3, 32, 32)), torch.Tensor)


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("torchvision:resnet81", (3, 32, 32), "torchvision has no such model; did you mean 'resnet18'"),
        ("torchvision:resnet18", (64,), "needs images of channels x height x width"),
        ("torchvision:resnet18", (4, 32, 32), "3 channels .or 1., but they have 4 here"),
    ],
)
def test_torchvision_model_rejects_wrong_name_and_shape(name, shape, sentence):
    with pytest.raises(UserError, match=sentence):
        create_torchvision_model(name, shape, 4)


FILE = """
from torch import nn
from torch.nn import Linear

class Net(nn.Module):
    def __init__(self, in_features, num_classes, hidden=7, **others):
        super().__init__()
        self.sizes = (in_features, hidden, num_classes)

class Images(nn.Module):
    def __init__(self, input_shape, channels, classes, vocab_size=3):
        super().__init__()
        self.arguments = (input_shape, channels, classes, vocab_size)

def make(n_classes):
    return nn.Linear(4, n_classes)

def plain():
    return nn.Linear(4, 2)

def wants(depth, num_classes):
    return nn.Linear(depth, num_classes)

def fails(num_classes):
    raise RuntimeError("no such\\nlayer")

def number():
    return 5

ready = nn.Linear(4, 2)
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_nets.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "my_nets", raising=False)


def make(name):
    return create_user_model(name, (1, 2, 3), classes=5, vocabulary=9)


def test_user_model_receives_its_known_parameters_and_keeps_defaults():
    assert make("my_nets:Net").sizes == (6, 7, 5)
    assert make("my_nets:Images").arguments == ((1, 2, 3), 1, 5, 9)


def test_user_model_may_be_a_function_or_an_imported_class():
    assert make("my_nets:make").out_features == 5
    assert make("my_nets:plain").out_features == 2
    assert make("my_nets:nn.Linear").in_features == 6


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("my_nets:wants", "needs 'depth'"),
        ("my_nets:fails", r"calling it with \(num_classes=5\) fails with RuntimeError \(no such layer\)"),
        ("my_nets:number", "returns a int"),
        ("my_nets:ready", "is a Linear; name a class, or a function"),
        ("my_nets:Nett", "my_nets has no 'Nett'; did you mean 'Net'"),
        ("my_netz:Net", "there is no module 'my_netz'; run from the folder"),
        ("my_nets:", "write it as package.module:Name"),
    ],
)
def test_user_model_errors_name_the_cause(name, sentence):
    with pytest.raises(UserError, match=sentence):
        make(name)
