import copy
import logging
import pickle

import pytest
import torch
from torch import nn

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureTap
from mrtf_fedml.models.adapters import (
    adapt_inputs,
    as_indices,
    flat,
    grey_28,
    in_colour,
    keep_first_classes,
    keeps_first_classes,
)


@pytest.mark.parametrize(
    ("change", "inputs", "shape"),
    [
        (flat, torch.rand(2, 3, 4), (2, 12)),
        (grey_28, torch.rand(2, 1, 28, 28), (2, 28, 28)),
        (grey_28, torch.rand(2, 784), (2, 28, 28)),
        (in_colour, torch.rand(2, 1, 5, 6), (2, 3, 5, 6)),
        (in_colour, torch.rand(2, 3, 5, 6), (2, 3, 5, 6)),
        (as_indices, torch.ones(2, 5), (2, 5)),
    ],
)
def test_the_model_sees_the_changed_inputs_and_the_caller_keeps_theirs(change, inputs, shape):
    before = inputs.clone()
    model = adapt_inputs(nn.Identity(), change)
    assert model(inputs).shape == shape
    assert torch.equal(inputs, before)


def test_grey_is_the_same_in_each_colour():
    inputs = torch.rand(2, 1, 4, 4)
    coloured = in_colour(inputs)
    assert all(torch.equal(coloured[:, channel], inputs[:, 0]) for channel in range(3))
    assert as_indices(torch.ones(1, 2)).dtype == torch.int64


def test_names_keys_and_features_stay_the_models_own():
    plain = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 5))
    model = keep_first_classes(adapt_inputs(copy.deepcopy(plain), flat), 3, "the model")
    assert list(model.state_dict()) == list(plain.state_dict())
    inputs = torch.randn(4, 2, 3)
    tap = FeatureTap(model, None, inputs[:2])
    logits, features = tap.read(model, inputs)
    assert tap.layer == "2"
    assert torch.equal(features, plain[:2](inputs.flatten(1)))
    assert torch.equal(logits, plain(inputs.flatten(1))[:, :3])


def test_surplus_logits_get_one_warning_and_no_gradient(caplog):
    model = keep_first_classes(nn.Linear(4, 5), 3, "Net")
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        for _ in range(3):
            logits = model(torch.ones(2, 4))
    assert caplog.text.count("Net gives 5 logits but the data have 3 classes: the first 3 are used") == 1
    nn.functional.cross_entropy(logits, torch.tensor([0, 2])).backward()
    assert model.weight.grad[:3].any()
    assert not model.weight.grad[3:].any()


def test_logits_at_every_position_are_cut_alike():
    model = keep_first_classes(nn.Conv1d(2, 5, 1), 3, "Net")
    assert model(torch.randn(4, 2, 7)).shape == (4, 3, 7)


def test_as_many_or_fewer_logits_pass_in_silence(caplog):
    assert keep_first_classes(nn.Linear(4, 3), 3, "Net")(torch.ones(2, 4)).shape == (2, 3)
    assert keep_first_classes(nn.Linear(4, 2), 3, "Net")(torch.ones(2, 4)).shape == (2, 2)
    assert not caplog.text


def test_what_is_no_tensor_gets_a_sentence():
    model = keep_first_classes(nn.LSTM(4, 5), 3, "Net")
    with pytest.raises(UserError, match="returned a tuple"):
        model(torch.ones(2, 7, 4))


def test_an_adapted_model_can_be_copied_and_sent():
    model = keep_first_classes(adapt_inputs(nn.Linear(6, 5), flat), 3, "Net")
    inputs = torch.randn(4, 2, 3)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert keeps_first_classes(twin)
        assert torch.equal(twin(inputs), model(inputs))
    assert not keeps_first_classes(nn.Linear(1, 1))
