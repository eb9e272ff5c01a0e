"""The networks that devices train: each an MNN graph, and the PyTorch twin that the server computes with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...errors import UserError, nearest
from . import graphs
from .twins import MobileLenet, MobileResnet20, Twin


@dataclass(frozen=True)
class DeviceModel:
    """One network in its two forms.

    Attributes:
        twin: makes the PyTorch module for so many classes. Its layers (Conv2d, Linear, BatchNorm2d) must be defined in
            the order in which the network uses them.
        graph: makes the MNN variable of the class probabilities for so many classes; the graph has one input, one
            output, and its parameters are MNN's `nn.conv`, `nn.linear` and `nn.batch_norm`.
    """

    twin: Callable[[int], Twin]
    graph: Callable[[int], Any]


#: By the words of `model_args.model`. Add your own before the run.
DEVICE_MODELS: dict[str, DeviceModel] = {
    "lenet": DeviceModel(MobileLenet, graphs.lenet),
    "resnet20": DeviceModel(MobileResnet20, graphs.resnet20),
}


def device_model(name: str) -> DeviceModel:
    """The network of this name."""
    if name not in DEVICE_MODELS:
        raise UserError(
            f"model_args.model is {name!r}, which no device knows; {nearest(name, list(DEVICE_MODELS))} (others are "
            "added to mrtf_fedml.fedml_bridge.cross_device.device_models.DEVICE_MODELS)"
        )
    return DEVICE_MODELS[name]
