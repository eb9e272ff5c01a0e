"""Which models answer in train mode as in use: by the rule, and by their answers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mrtf_fedml.models import create_model
from mrtf_fedml.models.train_mode import answers_alike
from mrtf_fedml.settings import ModelSettings


class Unknown(nn.Module):
    """A user's own, which looks at the mode."""

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.dropout(inputs, training=self.training)


@pytest.mark.parametrize("name", ["mlp", "lenet", "convnet", "vgg8", "fecnn", "resnet8"])
def test_our_nets_answer_alike_but_for_batch_normalisation(name: str) -> None:
    model = create_model(ModelSettings(model=name), (3, 32, 32), classes=5, seed=0)
    inputs = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        same = torch.equal(model.train()(inputs), model.eval()(inputs))
    assert answers_alike(model) == same == (name != "resnet8")


def test_only_layers_that_are_known_pass() -> None:
    assert answers_alike(create_model(ModelSettings(model="charlstm", vocabulary=7), (5,), classes=7, seed=0))
    for layer in (nn.Dropout(0.1), nn.BatchNorm1d(3), Unknown(), nn.LSTM(3, 3, num_layers=2, dropout=0.5)):
        assert not answers_alike(nn.Sequential(nn.Linear(3, 3), layer))
