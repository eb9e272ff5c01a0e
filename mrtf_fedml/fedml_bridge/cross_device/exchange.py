"""State dicts of a twin from the .mnn files of devices, and .mnn files for devices from state dicts.

The parameters of a file, in the order in which the network uses them, are those of the twin's layers, in the order in
which they are defined:

| layer of the twin | in the file, one after the other |
|---|---|
| Conv2d weight [O, I, H, W], bias [O] | the kernel [O, I, H, W] and the bias [O] of a convolution |
| Linear weight [O, I], bias [O] | the matrix [O, I] of a product, and a summand [1, O] |
| BatchNorm2d weight [C], bias [C] | a factor [1, C, 1, 1], and a summand [1, C, 1, 1] |

Roles and shapes must agree for every one of them; values are copied and never computed with.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from .device_models import device_model
from .flatbuffer import Malformed
from .graphs import saved
from .mnn_file import MnnFile, Parameter, Role
from .twins import Twin

_ROLES: dict[type[nn.Module], tuple[Role, Role]] = {
    nn.Conv2d: (Role.CONVOLUTION, Role.CONVOLUTION_BIAS),
    nn.Linear: (Role.PRODUCT, Role.SHIFT),
    nn.BatchNorm2d: (Role.SCALE, Role.SHIFT),
}
#: A device's file may be this many times as long as ours.
_SLACK = 2


class UnusableModel(ValueError):
    """A file that is no model of this run; the message says why."""


class Exchange:
    """The way between the twin of one network and its .mnn files.

    Args:
        name: the network, one of DEVICE_MODELS.
        classes: C.
    """

    def __init__(self, name: str, classes: int) -> None:
        model = device_model(name)
        self.name = name
        self.classes = classes
        self.twin: Twin = model.twin(classes)
        self._layout = _layout(self.twin)
        self._template = MnnFile(MnnFile(saved(model.graph, classes)).trainable())
        #: In bytes; a file of more is none of this network's.
        self.longest = _SLACK * len(self._template.content)
        try:
            self._matched(self._template)
        except UnusableModel as error:
            raise ValueError(f"twin and graph of the device model {name!r} do not fit: {error}") from error

    def to_file(self, weights: Mapping[str, Tensor]) -> bytes:
        """The .mnn file that holds these weights."""
        return self._template.with_values(
            [weights[key].detach().cpu().to(torch.float32).numpy() for key, _, _ in self._layout]
        )

    def to_weights(self, content: bytes) -> OrderedDict[str, Tensor]:
        """The state dict that an .mnn file holds.

        Raises:
            UnusableModel: the bytes are not a file of this network.
        """
        if not content:
            raise UnusableModel("the file is empty")
        if len(content) > self.longest:
            raise UnusableModel(
                f"the file is longer than any of {self.name!r}, which have at most {self.longest} bytes"
            )
        try:
            file = MnnFile(content)
        except Malformed as error:
            raise UnusableModel(f"the file is no MNN model, or is damaged: {error}") from error
        found = self._matched(file)
        return OrderedDict(
            (key, torch.tensor(parameter.values, dtype=torch.float32).reshape(shape))
            for (key, _, shape), parameter in zip(self._layout, found, strict=True)
        )

    def _matched(self, file: MnnFile) -> list[Parameter]:
        """The file's parameters, one for each of the twin's."""
        waiting = list(reversed(file.parameters))
        found = []
        for key, role, shape in self._layout:
            while waiting and waiting[-1].role is not role and waiting[-1].stands_for_none:
                waiting.pop()
            if not waiting:
                raise UnusableModel(f"it is not {self.name!r} for {self.classes} classes: it has no {key}")
            parameter = waiting.pop()
            if parameter.role is not role or _plain(parameter.shape) != _plain(shape):
                raise UnusableModel(
                    f"it is not {self.name!r} for {self.classes} classes: where {key} {tuple(shape)} is expected, it "
                    f"has {parameter.role.value} {parameter.shape}"
                )
            found.append(parameter)
        if waiting:
            raise UnusableModel(f"it is not {self.name!r} for {self.classes} classes: it has more parameters")
        return found


def _layout(twin: nn.Module) -> list[tuple[str, Role, torch.Size]]:
    """Key, role and shape of each parameter of the twin, in the order of use."""
    layout = []
    for prefix, layer in twin.named_modules():
        for kind, roles in _ROLES.items():
            if isinstance(layer, kind):
                for role, name in zip(roles, ("weight", "bias"), strict=True):
                    value = getattr(layer, name)
                    if value is not None:
                        layout.append((f"{prefix}.{name}", role, value.shape))
    if {key for key, _, _ in layout} != set(twin.state_dict()):
        raise ValueError("a twin holds nothing but Conv2d, Linear and BatchNorm2d without running statistics")
    return layout


def _plain(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without its ones, by which the file's differ from the twin's."""
    return tuple(side for side in shape if side != 1)
