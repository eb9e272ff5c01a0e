"""FedML's mobile networks as PyTorch modules that compute what their .mnn files compute, and their inputs.

Layers are defined in the order in which the network uses them: that order is the mapping to the file (see
device_models.py). The files end in a softmax; the modules end before it, in logits.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ....data.preprocessing import DEVIATION, MEAN
from ....errors import UserError

#: Of MNN's batch normalisation; a constant of the file.
_EPSILON = 1e-5
_GREY_LEVELS = 255
_ROUNDING = 1e-3


class MobileModel(nn.Module):
    """A classifier of images of one shape; other images are converted to it, as on a device."""

    #: Channels, height and width of the file's input.
    input_shape: tuple[int, int, int]

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of inputs [N, channels, height, width]."""
        logits: Tensor = self.logits(resize_images(inputs, self.input_shape))
        return logits

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of inputs [N, *input_shape]."""
        raise NotImplementedError


class MobileLenet(MobileModel):
    """FedML's mobile `lenet`: 5x5 convolution to 20 channels, pool, 5x5 convolution to 50, pool, 500, C."""

    input_shape = (1, 28, 28)

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, classes)

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of inputs [N, *input_shape]."""
        maps = functional.max_pool2d(functional.relu(self.conv1(inputs)), 2)
        maps = functional.max_pool2d(functional.relu(self.conv2(maps)), 2)
        logits: Tensor = self.fc2(functional.relu(self.fc1(maps.flatten(1))))
        return logits


class _SameConvolution(nn.Conv2d):
    """A convolution with the padding of MNN's mode SAME, which puts an odd pixel at the right and at the bottom.

    With stride 2 on an even side that is (0, 1), where PyTorch's padding=1 would shift the image by a pixel.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__(inputs, outputs, kernel, stride, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        pads: list[int] = []
        for side, kernel, stride in zip(reversed(input.shape[2:]), self.kernel_size, self.stride, strict=True):
            missing = max(0, (-(-side // stride) - 1) * stride + kernel - side)
            pads += [missing // 2, missing - missing // 2]
        return super().forward(functional.pad(input, pads))


def _batch_norm(channels: int) -> nn.BatchNorm2d:
    # FedML saves the training graph: the file has no running statistics, and every batch is normalised by its own.
    return nn.BatchNorm2d(channels, eps=_EPSILON, track_running_stats=False)


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = _SameConvolution(inputs, outputs, 3, stride)
        self.bn1 = _batch_norm(outputs)
        self.conv2 = _SameConvolution(outputs, outputs, 3, 1)
        self.bn2 = _batch_norm(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            self.shortcut = nn.Sequential(_SameConvolution(inputs, outputs, 1, stride), _batch_norm(outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        maps = functional.relu(self.bn1(self.conv1(inputs)))
        return functional.relu(self.bn2(self.conv2(maps)) + self.shortcut(inputs))


class MobileResnet20(MobileModel):
    """FedML's mobile `resnet20`: three stages of three blocks with 16, 32 and 64 channels, mean, C."""

    input_shape = (3, 32, 32)

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1 = _SameConvolution(3, 16, 3, 1)
        self.bn1 = _batch_norm(16)
        self.blocks = nn.Sequential(
            *(_Block(16, 16) for _ in range(3)),
            _Block(16, 32, stride=2),
            *(_Block(32, 32) for _ in range(2)),
            _Block(32, 64, stride=2),
            *(_Block(64, 64) for _ in range(2)),
        )
        self.fc = nn.Linear(64, classes)

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of inputs [N, *input_shape]."""
        maps = self.blocks(functional.relu(self.bn1(self.conv1(inputs))))
        logits: Tensor = self.fc(torch.mean(maps, dim=(2, 3)))
        return logits


def to_device_inputs(inputs: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Images of our loader [N, channels, H, W] as FedML's app has them: each grey level x as x/255, resized to `shape`.

    Our loader centres grey levels around zero. Values that are not grey levels are kept.
    """
    if inputs.ndim != 4 or inputs.shape[1] not in (1, shape[0]):
        raise UserError(
            f"the devices' model takes images of shape {shape}, and the data have {tuple(inputs.shape[1:])}; choose "
            "another model_args.model or other data"
        )
    levels = (inputs * DEVIATION + MEAN) * _GREY_LEVELS
    are_levels = bool((levels >= -_ROUNDING).all()) and bool(((levels - levels.round()).abs() < _ROUNDING).all())
    return resize_images((levels / _GREY_LEVELS) if are_levels else inputs, shape)


def resize_images(inputs: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Images [N, 1 or channels, any height, any width] in the network's shape; grey channels are repeated."""
    if inputs.shape[1] == 1 != shape[0]:
        inputs = inputs.expand(-1, shape[0], -1, -1)
    if tuple(inputs.shape[2:]) != shape[1:]:
        inputs = functional.interpolate(inputs, size=shape[1:], mode="bilinear", align_corners=False)
    return inputs
