"""Channels last by rule: where it is taken, and that nothing of it leaves a process."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mrtf_fedml.algorithms.local_training import train_locally
from mrtf_fedml.data import TensorShard
from mrtf_fedml.models import create_model, in_layout, lay_out, layout_of, predict_logits
from mrtf_fedml.models.weights import apart, clone, snapshot
from mrtf_fedml.settings import ModelSettings, TrainSettings


def test_the_rule_looks_at_the_layers_alone() -> None:
    names = {"mlp": "standard", "lenet": "channels_last", "convnet": "channels_last", "resnet8": "channels_last"}
    for name, expected in names.items():
        assert layout_of(create_model(ModelSettings(model=name), (3, 32, 32), 10, seed=0)) == expected
    assert layout_of(nn.Conv2d(4, 4, 3, groups=4)) == "standard"
    assert layout_of(nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv3d(1, 1, 3))) == "standard"


def test_the_layout_changes_an_answer_in_its_last_bits_at_most() -> None:
    for name in ("lenet", "convnet", "vgg8", "resnet8"):
        model = create_model(ModelSettings(model=name), (3, 32, 32), 10, seed=0).eval()
        inputs = torch.randn(5, 3, 32, 32)
        with torch.no_grad():
            plain = model(inputs)
        laid = in_layout(model, inputs)
        assert laid.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(predict_logits(model, laid), plain, rtol=1e-4, atol=1e-5)
        # Inputs in the standard layout are brought into the model's by the batch, with the same bytes.
        assert torch.equal(predict_logits(model, laid), predict_logits(model, inputs))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_weights_leave_a_process_in_the_standard_layout() -> None:
    model = create_model(ModelSettings(model="lenet"), (3, 28, 28), 10, seed=0)
    start = snapshot(model)
    lay_out(model)
    assert not model.convolutions[0].weight.is_contiguous()
    shard = TensorShard(torch.randn(6, 3, 28, 28), torch.arange(6), np.arange(6), batch_size=3)
    trained, _ = train_locally(model, start, shard, TrainSettings(), seed=0, client=0, round_index=0)
    own = model.state_dict()
    for weights in (trained, snapshot(model), clone(own), apart(own, list(own.values()))):
        assert all(tensor.is_contiguous() for tensor in weights.values())
        assert all(torch.equal(weights[key], own[key]) for key in own)
