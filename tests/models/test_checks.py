from __future__ import annotations

import pytest
import torch
from torch import nn

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import LeNet
from mrtf_fedml.models.checks import check_image_shape, check_model_output, materialize_lazy_layers
from mrtf_fedml.models.state_dict import snapshot


def test_check_model_output_does_not_change_the_model():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3)).train()
    before = snapshot(model)
    assert check_model_output(model, torch.randn(2, 4), 3, "it").shape == (2, 3)
    assert model[1].training
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert check_model_output(model, torch.randn(1, 4), None, "it").shape == (1, 3)


def test_check_model_output_keeps_global_random_state():
    class Careless(nn.Linear):
        def forward(self, inputs):
            return nn.functional.dropout(super().forward(inputs))

    model, inputs = Careless(4, 3), torch.randn(2, 4)
    state = torch.random.get_rng_state()
    check_model_output(model, inputs, 3, "it")
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("outputs", [2, 4])
def test_check_model_output_rejects_wrong_number_of_logits(outputs):
    with pytest.raises(
        UserError, match=rf"Net gives {outputs} logits but the data have 3 classes; make its last layer 3"
    ):
        check_model_output(nn.Linear(4, outputs), torch.zeros(2, 4), 3, "Net")


def test_check_model_output_reports_wrong_input_shape():
    with pytest.raises(
        UserError, match=r"LeNet cannot take samples of shape 3 x 8 x 8 \(RuntimeError: .*use a model"
    ) as raised:
        check_model_output(LeNet((1, 8, 8), 3), torch.zeros(2, 3, 8, 8), 3, "LeNet")
    assert "\n" not in str(raised.value)
    with pytest.raises(UserError, match="cannot take samples of shape 4"):
        check_model_output(nn.Linear(4, 3), torch.zeros(2, 4, dtype=torch.int64), 3, "Net")


def test_check_model_output_rejects_logits_that_are_not_finite():
    model = nn.Linear(4, 3)
    nn.init.constant_(model.bias, float("inf"))
    with pytest.raises(UserError, match="not finite for the first samples, before any training"):
        check_model_output(model, torch.zeros(2, 4), 3, "Net")


def test_check_model_output_rejects_tuple():
    with pytest.raises(UserError, match="returned a tuple"):
        check_model_output(nn.LSTM(4, 3, batch_first=True), torch.zeros(2, 5, 4), 3, "Net")


def test_materialize_lazy_layers_makes_trainable_weights():
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.Linear(5, 3)).train()
    materialize_lazy_layers(model, torch.randn(2, 2, 3), "Net")
    assert model[1].in_features == 6
    assert model[2].num_batches_tracked == 0
    assert model.training
    check_model_output(model, torch.randn(2, 2, 3), 3, "Net")
    model(torch.randn(4, 2, 3)).sum().backward()
    assert model[1].weight.grad is not None


def test_materialize_lazy_layers_reports_wrong_input_shape():
    with pytest.raises(UserError, match="Net cannot take samples of shape 4"):
        materialize_lazy_layers(nn.LazyConv2d(3, 3), torch.zeros(2, 4), "Net")


def test_check_image_shape_accepts_smallest_image():
    assert check_image_shape("convnet", [3, 4, 9], smallest_side=4) == (3, 4, 9)


@pytest.mark.parametrize("shape", [(784,), (28, 28), (1, 1, 28, 28)], ids=str)
def test_check_image_shape_rejects_other_dimensions(shape):
    with pytest.raises(UserError, match=" x ".join(map(str, shape)) + "; use `model: mlp`"):
        check_image_shape("convnet", shape, smallest_side=4)


def test_check_image_shape_rejects_either_side_too_small():
    for shape in [(1, 3, 8), (1, 8, 3)]:
        with pytest.raises(UserError, match="'lenet' needs images of at least 4 x 4"):
            check_image_shape("lenet", shape, smallest_side=4)
