"""Memory layout: the rule, its effect on predictions, and the layout of snapshots."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms.local_training import train_locally
from mrtf_fedml.config import ModelSettings, TrainSettings
from mrtf_fedml.data import TensorShard
from mrtf_fedml.models import apply_layout, create_model, match_layout, predict_logits, preferred_layout
from mrtf_fedml.models.memory_layout import model_device
from mrtf_fedml.models.state_dict import clone, clone_if_aliased, snapshot


def test_preferred_layout_depends_on_layers_only() -> None:
    names = {"mlp": "standard", "lenet": "channels_last", "convnet": "channels_last", "resnet8": "channels_last"}
    for name, expected in names.items():
        assert preferred_layout(create_model(ModelSettings(model=name), (3, 32, 32), 10, seed=0)) == expected
    assert preferred_layout(nn.Conv2d(4, 4, 3, groups=4)) == "standard"
    assert preferred_layout(nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv3d(1, 1, 3))) == "standard"


def test_layout_changes_predictions_by_rounding_only() -> None:
    for name in ("lenet", "convnet", "vgg8", "resnet8"):
        model = create_model(ModelSettings(model=name), (3, 32, 32), 10, seed=0).eval()
        inputs = torch.randn(5, 3, 32, 32)
        with torch.no_grad():
            plain = model(inputs)
        laid = match_layout(model, inputs)
        assert laid.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(predict_logits(model, laid), plain, rtol=1e-4, atol=1e-5)
        # Inputs in the standard layout are brought into the model's by the batch, with the same bytes.
        assert torch.equal(predict_logits(model, laid), predict_logits(model, inputs))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_snapshot_has_standard_layout() -> None:
    model = create_model(ModelSettings(model="lenet"), (3, 28, 28), 10, seed=0)
    start = snapshot(model)
    apply_layout(model)
    assert not model.convolutions[0].weight.is_contiguous()
    shard = TensorShard(torch.randn(6, 3, 28, 28), torch.arange(6), np.arange(6), batch_size=3)
    trained, _ = train_locally(model, start, shard, TrainSettings(), seed=0, client=0, round_index=0)
    own = model.state_dict()
    for weights in (trained, snapshot(model), clone(own), clone_if_aliased(own, list(own.values()))):
        assert all(tensor.is_contiguous() for tensor in weights.values())
        assert all(torch.equal(weights[key], own[key]) for key in own)


def test_model_device_is_that_of_the_weights() -> None:
    assert model_device(nn.Linear(2, 2, device="meta")) == torch.device("meta")
    assert model_device(nn.BatchNorm1d(2, affine=False, device="meta")) == torch.device("meta")
    assert model_device(nn.ReLU()) == torch.device("cpu")
