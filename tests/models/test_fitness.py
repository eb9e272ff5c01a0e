import pytest
import torch
from torch import nn

from mrtf_fedml.errors import UserError
from mrtf_fedml.models import LeNet
from mrtf_fedml.models.fitness import check_fit, complete
from mrtf_fedml.models.weights import snapshot


def test_a_model_that_fits_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3)).train()
    before = snapshot(model)
    assert check_fit(model, torch.randn(2, 4), 3, "it").shape == (2, 3)
    assert model[1].training
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert check_fit(model, torch.randn(1, 4), None, "it").shape == (1, 3)


def test_global_random_state_is_untouched():
    class Careless(nn.Linear):
        def forward(self, inputs):
            return nn.functional.dropout(super().forward(inputs))

    model, inputs = Careless(4, 3), torch.randn(2, 4)
    state = torch.random.get_rng_state()
    check_fit(model, inputs, 3, "it")
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("outputs", [2, 4])
def test_too_many_or_too_few_logits(outputs):
    with pytest.raises(
        UserError, match=rf"Net gives {outputs} logits but the data have 3 classes; make its last layer 3"
    ):
        check_fit(nn.Linear(4, outputs), torch.zeros(2, 4), 3, "Net")


def test_inputs_it_cannot_take():
    with pytest.raises(
        UserError, match=r"LeNet cannot take samples of shape 3 x 8 x 8 \(RuntimeError: .*use a model"
    ) as told:
        check_fit(LeNet((1, 8, 8), 3), torch.zeros(2, 3, 8, 8), 3, "LeNet")
    assert "\n" not in str(told.value)
    with pytest.raises(UserError, match="cannot take samples of shape 4"):
        check_fit(nn.Linear(4, 3), torch.zeros(2, 4, dtype=torch.int64), 3, "Net")


def test_logits_that_are_not_finite():
    model = nn.Linear(4, 3)
    nn.init.constant_(model.bias, float("inf"))
    with pytest.raises(UserError, match="not finite for the first samples, before any training"):
        check_fit(model, torch.zeros(2, 4), 3, "Net")


def test_what_is_no_tensor():
    with pytest.raises(UserError, match="returned a tuple"):
        check_fit(nn.LSTM(4, 3, batch_first=True), torch.zeros(2, 5, 4), 3, "Net")


def test_lazy_layers_learn_their_sizes_and_can_be_trained():
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.Linear(5, 3)).train()
    complete(model, torch.randn(2, 2, 3), "Net")
    assert model[1].in_features == 6
    assert model[2].num_batches_tracked == 0
    assert model.training
    check_fit(model, torch.randn(2, 2, 3), 3, "Net")
    model(torch.randn(4, 2, 3)).sum().backward()
    assert model[1].weight.grad is not None


def test_lazy_layers_that_cannot_take_the_samples():
    with pytest.raises(UserError, match="Net cannot take samples of shape 4"):
        complete(nn.LazyConv2d(3, 3), torch.zeros(2, 4), "Net")
