"""The networks that devices train: MNN graph, PyTorch module, and the conversion of weights between the two.

FedML's own graph builders (fedml.model.mobile) fix ten classes, and with the current MNN package their modules must be
built while expressions are lazy. The graphs here have any number of classes.

The parameters of an .mnn file, in the order in which the network uses them, are those of the module's layers, in the
order in which they are defined:

| layer of the module | in the file, one after the other |
|---|---|
| Conv2d weight [O, I, H, W], bias [O] | the kernel [O, I, H, W] and the bias [O] of a convolution |
| Linear weight [O, I], bias [O] | the matrix [O, I] of a product, and a summand [1, O] |
| BatchNorm2d weight [C], bias [C] | a factor [1, C, 1, 1], and a summand [1, C, 1, 1] |

Roles and shapes must agree for every parameter; values are copied unchanged.
"""

from __future__ import annotations

import functools
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ....errors import UserError, suggest_name
from .mnn_file import MalformedFile, MnnFile, Parameter, Role
from .torch_models import MobileLenet, MobileModel, MobileResnet20

_ROLES: dict[type[nn.Module], tuple[Role, Role]] = {
    nn.Conv2d: (Role.CONVOLUTION, Role.CONVOLUTION_BIAS),
    nn.Linear: (Role.PRODUCT, Role.SHIFT),
    nn.BatchNorm2d: (Role.SCALE, Role.SHIFT),
}
#: Largest size of a device's file, as a multiple of ours.
_MAX_SIZE_RATIO = 2


@functools.cache
def import_mnn() -> Any:
    """The package MNN with lazy evaluation, imported on first use."""
    try:
        import MNN
    except ImportError as error:
        raise UserError("training across devices needs the package MNN; pip install 'mrtf_fedml[device]'") from error
    # Without it every expression is evaluated at once, and the graph that is to be saved or trained is lost.
    MNN.expr.lazy_eval(True)
    return MNN


def lenet_graph(classes: int) -> Any:
    """FedML's mobile `lenet` as MNN graph: class probabilities of an image."""
    expr, nn = import_mnn().expr, import_mnn().nn
    maps = expr.placeholder([1, 1, 28, 28], expr.NCHW)
    for inputs, outputs in ((1, 20), (20, 50)):
        maps = expr.max_pool(expr.relu(nn.conv(inputs, outputs, [5, 5])(maps)), [2, 2], [2, 2])
    hidden = expr.relu(nn.linear(800, 500)(_flatten(maps)))
    return expr.softmax(nn.linear(500, classes)(hidden), 1)


def resnet20_graph(classes: int) -> Any:
    """FedML's mobile `resnet20` as MNN graph: class probabilities of an image."""
    expr, nn = import_mnn().expr, import_mnn().nn
    maps = expr.relu(_normalised_convolution(expr.placeholder([1, 3, 32, 32], expr.NCHW), 3, 16))
    width = 16
    for outputs in (16, 16, 16, 32, 32, 32, 64, 64, 64):
        stride = 1 if outputs == width else 2
        inner = expr.relu(_normalised_convolution(maps, width, outputs, stride=stride))
        inner = _normalised_convolution(inner, outputs, outputs)
        shortcut = maps
        if outputs != width:
            shortcut = _normalised_convolution(maps, width, outputs, kernel=1, stride=stride)
        maps, width = expr.relu(inner + shortcut), outputs
    return expr.softmax(nn.linear(64, classes)(_flatten(expr.avg_pool(maps, [8, 8], [8, 8]))), 1)


def _normalised_convolution(maps: Any, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> Any:
    nn = import_mnn().nn
    convolution = nn.conv(
        inputs,
        outputs,
        kernel_size=[kernel, kernel],
        stride=[stride, stride],
        bias=False,
        padding_mode=import_mnn().expr.Padding_Mode.SAME,
    )
    # Kept in training mode, as by FedML: the graph then normalises by the batch's own statistics.
    return nn.batch_norm(outputs)(convolution(maps))


def _flatten(maps: Any) -> Any:
    expr = import_mnn().expr
    return expr.reshape(expr.convert(maps, expr.NCHW), [0, -1])


@dataclass(frozen=True)
class DeviceModel:
    """One network in its two forms.

    Attributes:
        torch_model: makes the PyTorch module for a number of classes. Its layers (Conv2d, Linear, BatchNorm2d) must be
            defined in the order in which the network uses them.
        mnn_graph: makes the MNN variable of the class probabilities for a number of classes. The graph has one input
            and one output, and its parameters are those of MNN's `nn.conv`, `nn.linear` and `nn.batch_norm`.
    """

    torch_model: Callable[[int], MobileModel]
    mnn_graph: Callable[[int], Any]


#: By the value of `model_args.model`. Add your own before the run.
DEVICE_MODELS: dict[str, DeviceModel] = {
    "lenet": DeviceModel(MobileLenet, lenet_graph),
    "resnet20": DeviceModel(MobileResnet20, resnet20_graph),
}


def device_model(name: str) -> DeviceModel:
    """The network of this name."""
    if name not in DEVICE_MODELS:
        raise UserError(
            f"model_args.model is {name!r}, which is not a device model; {suggest_name(name, list(DEVICE_MODELS))} "
            "(others are added to mrtf_fedml.fedml_bridge.backends.cross_device.device_models.DEVICE_MODELS)"
        )
    return DEVICE_MODELS[name]


class UnusableModel(ValueError):
    """A file that is not a model of this run; the message says why."""


class ModelConverter:
    """Converts between the state dicts of one network and its .mnn files.

    Args:
        name: the network, one of DEVICE_MODELS.
        classes: C.
    """

    def __init__(self, name: str, classes: int) -> None:
        model = device_model(name)
        self.name = name
        self.classes = classes
        self.torch_model: MobileModel = model.torch_model(classes)
        self._layout = _parameter_layout(self.torch_model)
        self._template = MnnFile(MnnFile(_save_graph(model.mnn_graph, classes)).mark_trainable())
        #: Size of the largest file that is accepted.
        self.max_bytes = _MAX_SIZE_RATIO * len(self._template.content)
        try:
            self._match_parameters(self._template)
        except UnusableModel as error:
            raise ValueError(f"PyTorch module and graph of the device model {name!r} differ: {error}") from error

    def to_mnn(self, weights: Mapping[str, Tensor]) -> bytes:
        """The .mnn file with these weights."""
        return self._template.replace_values(
            [weights[key].detach().cpu().to(torch.float32).numpy() for key, _, _ in self._layout]
        )

    def to_state_dict(self, content: bytes) -> OrderedDict[str, Tensor]:
        """The weights of an .mnn file.

        Raises:
            UnusableModel: the bytes are not a file of this network.
        """
        if not content:
            raise UnusableModel("the file is empty")
        if len(content) > self.max_bytes:
            raise UnusableModel(f"the file is too large: files of {self.name!r} have at most {self.max_bytes} bytes")
        try:
            file = MnnFile(content)
        except MalformedFile as error:
            raise UnusableModel(f"the file is not an MNN model, or is damaged: {error}") from error
        parameters = self._match_parameters(file)
        return OrderedDict(
            (key, torch.tensor(parameter.values, dtype=torch.float32).reshape(shape))
            for (key, _, shape), parameter in zip(self._layout, parameters, strict=True)
        )

    def _match_parameters(self, file: MnnFile) -> list[Parameter]:
        """The file's parameters in the order of the module's."""
        remaining = list(reversed(file.parameters))
        matched = []
        for key, role, shape in self._layout:
            while remaining and remaining[-1].role is not role and remaining[-1].is_implicit_bias:
                remaining.pop()
            if not remaining:
                raise UnusableModel(f"it is not {self.name!r} for {self.classes} classes: it has no {key}")
            parameter = remaining.pop()
            if parameter.role is not role or _without_ones(parameter.shape) != _without_ones(shape):
                raise UnusableModel(
                    f"it is not {self.name!r} for {self.classes} classes: where {key} {tuple(shape)} is expected, it "
                    f"has {parameter.role.value} {parameter.shape}"
                )
            matched.append(parameter)
        if remaining:
            raise UnusableModel(f"it is not {self.name!r} for {self.classes} classes: it has more parameters")
        return matched


def _save_graph(graph: Callable[[int], Any], classes: int) -> bytes:
    """The .mnn file of a graph."""
    output = graph(classes)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.mnn"
        import_mnn().expr.save([output], str(file))
        return file.read_bytes()


def _parameter_layout(model: nn.Module) -> list[tuple[str, Role, torch.Size]]:
    """Key, role and shape of each parameter, in the order of use."""
    layout = []
    for prefix, layer in model.named_modules():
        for kind, roles in _ROLES.items():
            if isinstance(layer, kind):
                for role, name in zip(roles, ("weight", "bias"), strict=True):
                    value = getattr(layer, name)
                    if value is not None:
                        layout.append((f"{prefix}.{name}", role, value.shape))
    if {key for key, _, _ in layout} != set(model.state_dict()):
        raise ValueError("a device model has only Conv2d, Linear, and BatchNorm2d without running statistics")
    return layout


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without its ones, in which the file's differ from the module's."""
    return tuple(side for side in shape if side != 1)
