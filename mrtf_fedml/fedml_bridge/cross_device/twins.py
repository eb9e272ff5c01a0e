"""FedML's mobile networks as PyTorch modules that compute what their .mnn files compute.

Layers are defined in the order in which the network uses them: that order is the mapping to the file (see exchange.py).
The files end in a softmax; the twins end before it, in logits.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .pictures import fitted

#: MNN's; it is a constant of the file.
_EPSILON = 1e-5


class Twin(nn.Module):
    """A classifier of images of one shape; images of another are first brought to it, as devices do with theirs."""

    #: Channels, height and width of what the file takes.
    input_shape: tuple[int, int, int]

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of inputs [N, channels, height, width]."""
        logits: Tensor = self.logits(fitted(inputs, self.input_shape))
        return logits

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of inputs [N, *input_shape]."""
        raise NotImplementedError


class MobileLenet(Twin):
    """FedML's mobile `lenet`: 5x5 convolution of 20 maps, pool, 5x5 convolution of 50, pool, 500, C."""

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
    """A convolution padded as MNN's mode SAME pads: what does not divide evenly goes to the right and to the bottom.

    With stride 2 on an even side that is (0, 1), where PyTorch's padding=1 would shift the picture by a pixel.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__(inputs, outputs, kernel, stride, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        pads: list[int] = []
        for side, kernel, stride in zip(reversed(input.shape[2:]), self.kernel_size, self.stride, strict=True):
            missing = max(0, (-(-side // stride) - 1) * stride + kernel - side)
            pads += [missing // 2, missing - missing // 2]
        return super().forward(functional.pad(input, pads))


def _batch_norm(maps: int) -> nn.BatchNorm2d:
    # FedML saves the training graph: the file has no running statistics, and every batch is normalised by its own.
    return nn.BatchNorm2d(maps, eps=_EPSILON, track_running_stats=False)


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


class MobileResnet20(Twin):
    """FedML's mobile `resnet20`: three stages of three blocks with 16, 32 and 64 maps, mean, C."""

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
