import copy
import logging
import pickle

import pytest
import torch
from torch import nn

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureExtractor
from mrtf_fedml.models.forward_hooks import (
    adapt_inputs,
    flatten_inputs,
    grey_to_rgb,
    has_truncated_logits,
    to_grey_28,
    to_indices,
    truncate_logits,
)


@pytest.mark.parametrize(
    ("change", "inputs", "shape"),
    [
        (flatten_inputs, torch.rand(2, 3, 4), (2, 12)),
        (to_grey_28, torch.rand(2, 1, 28, 28), (2, 28, 28)),
        (to_grey_28, torch.rand(2, 784), (2, 28, 28)),
        (grey_to_rgb, torch.rand(2, 1, 5, 6), (2, 3, 5, 6)),
        (grey_to_rgb, torch.rand(2, 3, 5, 6), (2, 3, 5, 6)),
        (to_indices, torch.ones(2, 5), (2, 5)),
    ],
)
def test_adapt_inputs_transforms_inputs_without_changing_the_callers(change, inputs, shape):
    before = inputs.clone()
    model = adapt_inputs(nn.Identity(), change)
    assert model(inputs).shape == shape
    assert torch.equal(inputs, before)


def test_grey_to_rgb_repeats_the_channel():
    inputs = torch.rand(2, 1, 4, 4)
    coloured = grey_to_rgb(inputs)
    assert all(torch.equal(coloured[:, channel], inputs[:, 0]) for channel in range(3))
    assert to_indices(torch.ones(1, 2)).dtype == torch.int64


def test_adapt_inputs_keeps_names_keys_and_features():
    plain = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 5))
    model = truncate_logits(adapt_inputs(copy.deepcopy(plain), flatten_inputs), 3, "the model")
    assert list(model.state_dict()) == list(plain.state_dict())
    inputs = torch.randn(4, 2, 3)
    extractor = FeatureExtractor(model, None, inputs[:2])
    logits, features = extractor.extract(model, inputs)
    assert extractor.layer == "2"
    assert torch.equal(features, plain[:2](inputs.flatten(1)))
    assert torch.equal(logits, plain(inputs.flatten(1))[:, :3])


def test_truncate_logits_warns_once_and_gives_no_gradient(caplog):
    model = truncate_logits(nn.Linear(4, 5), 3, "Net")
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        for _ in range(3):
            logits = model(torch.ones(2, 4))
    assert caplog.text.count("Net gives 5 logits but the data have 3 classes: the first 3 are used") == 1
    nn.functional.cross_entropy(logits, torch.tensor([0, 2])).backward()
    assert model.weight.grad[:3].any()
    assert not model.weight.grad[3:].any()


def test_truncate_logits_of_positions():
    model = truncate_logits(nn.Conv1d(2, 5, 1), 3, "Net")
    assert model(torch.randn(4, 2, 7)).shape == (4, 3, 7)


def test_truncate_logits_passes_fewer_logits_without_warning(caplog):
    assert truncate_logits(nn.Linear(4, 3), 3, "Net")(torch.ones(2, 4)).shape == (2, 3)
    assert truncate_logits(nn.Linear(4, 2), 3, "Net")(torch.ones(2, 4)).shape == (2, 2)
    assert not caplog.text


def test_truncate_logits_rejects_tuple():
    model = truncate_logits(nn.LSTM(4, 5), 3, "Net")
    with pytest.raises(UserError, match="returned a tuple"):
        model(torch.ones(2, 7, 4))


def test_adapted_model_can_be_copied_and_pickled():
    model = truncate_logits(adapt_inputs(nn.Linear(6, 5), flatten_inputs), 3, "Net")
    inputs = torch.randn(4, 2, 3)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert has_truncated_logits(twin)
        assert torch.equal(twin(inputs), model(inputs))
    assert not has_truncated_logits(nn.Linear(1, 1))
