import pytest
import torch
from torch import nn

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import (
    MODELS,
    ConvNet,
    LeNet,
    MLPNet,
    create_model,
)
from mrtf_fedml.settings import ModelSettings


@pytest.mark.parametrize(("name", "kind"), [("mlp", MLPNet), ("lenet", LeNet), ("convnet", ConvNet)])
def test_models_by_name(name, kind):
    model = create_model(ModelSettings(model=name), [1, 8, 8], classes=3, seed=0)
    assert type(model) is kind
    assert model(torch.randn(2, 1, 8, 8)).shape == (2, 3)


def test_hidden_size_reaches_the_mlp():
    model = create_model(ModelSettings(model="mlp", hidden_size=6), (4,), classes=3, seed=0)
    assert [tuple(weights.shape) for weights in model.parameters() if weights.dim() == 2] == [
        (6, 4),
        (6, 6),
        (128, 6),
        (3, 128),
    ]


def test_feature_size_reaches_the_mlp():
    model = create_model(ModelSettings(model="mlp", feature_size=2), (4,), classes=3, seed=0)
    assert model.classifier.in_features == 2


def test_same_seed_same_weights_whatever_was_drawn_before():
    settings = ModelSettings(model="lenet")
    first = create_model(settings, (1, 8, 8), 10, seed=3).state_dict()
    torch.rand(17)
    second = create_model(settings, (1, 8, 8), 10, seed=3).state_dict()
    other = create_model(settings, (1, 8, 8), 10, seed=4).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not any(torch.equal(first[key], other[key]) for key in first)


def test_global_random_state_is_untouched():
    before = torch.random.get_rng_state()
    create_model(ModelSettings(), (4,), 2, seed=1)
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_new_model_is_one_more_entry(monkeypatch):
    monkeypatch.setitem(MODELS, "line", lambda settings, shape, classes: nn.Linear(shape[0], classes))
    assert create_model(ModelSettings(model="line"), (4,), 2, seed=1).weight.shape == (2, 4)


def test_unknown_name_names_the_nearest():
    with pytest.raises(UserError, match=r"model_args\.model 'convnt' is unknown; did you mean 'convnet'"):
        create_model(ModelSettings(model="convnt"), (1, 8, 8), 10, seed=0)


@pytest.mark.parametrize("name", ["lenet", "convnet"])
@pytest.mark.parametrize("shape", [(64,), (8, 8)])
def test_a_convolutional_net_refuses_what_is_no_image(name, shape):
    with pytest.raises(UserError, match="use `model: mlp`"):
        create_model(ModelSettings(model=name), shape, 10, seed=0)


def test_one_class_or_an_empty_sample_is_refused():
    with pytest.raises(UserError, match="at least two classes"):
        create_model(ModelSettings(), (4,), 1, seed=0)
    with pytest.raises(UserError, match="holds nothing"):
        create_model(ModelSettings(), (1, 0, 8), 2, seed=0)
