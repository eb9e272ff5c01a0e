"""MNN itself, as the tests ask it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from mrtf_fedml.fedml_bridge.backends.cross_device.device_models import import_mnn


def random_weights(model: Module, seed: int) -> dict[str, Tensor]:
    """Weights of ordinary size; no two layers and no two entries are equal."""
    generator = torch.Generator().manual_seed(seed)
    return {
        key: torch.randn(value.shape, generator=generator) / max(1, value[0].numel()) ** 0.5
        for key, value in model.state_dict().items()
    }


def mnn_logits(file: Path, inputs: Tensor) -> Tensor:
    """What MNN computes before the softmax that ends the file."""
    expr, nn = import_mnn().expr, import_mnn().nn
    given, made = expr.get_inputs_and_outputs(expr.load_as_dict(str(file)))
    (softmax,) = made.values()
    module = nn.load_module(list(given.values()), [softmax.inputs[0]], False)
    module.train(False)
    logits = module.forward(expr.const(inputs.numpy(), list(inputs.shape), expr.NCHW))
    # A copy: MNN's own memory is gone with the variable.
    return torch.tensor(np.array(logits.read()))
