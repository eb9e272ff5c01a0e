"""ResNet8 and ResNet20, the paper's residual networks for CIFAR-100.

K. He, X. Zhang, S. Ren, J. Sun. Deep residual learning for image recognition. CVPR 2016, Sect. 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ..checks import check_image_shape

_WIDTHS = (16, 32, 64)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch normalisation, and a shortcut without weights (option A).

    Where the number of maps increases and their size decreases, the shortcut takes every second pixel and adds zero
    maps, half of them on either side.
    """

    def __init__(self, channels: int, maps: int, stride: int) -> None:
        super().__init__()
        self.convolution1 = nn.Conv2d(channels, maps, kernel_size=3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(maps)
        self.convolution2 = nn.Conv2d(maps, maps, kernel_size=3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(maps)
        self.relu = nn.ReLU(inplace=True)
        self.stride = stride
        self.new_maps = maps - channels

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps [N, maps, H / stride, W / stride] of maps [N, channels, H, W]."""
        residual = self.norm2(self.convolution2(self.relu(self.norm1(self.convolution1(inputs)))))
        shortcut = inputs[:, :, :: self.stride, :: self.stride]
        before = self.new_maps // 2
        shortcut = nn.functional.pad(shortcut, (0, 0, 0, 0, before, self.new_maps - before))
        output: Tensor = self.relu(residual + shortcut)
        return output


class ResNet(nn.Module):
    """3x3 convolution of 16 maps, three stages of n blocks with 16, 32 and 64 maps, global mean, C.

    6n + 2 layers with weights: n = 1 is ResNet8, n = 3 is ResNet20. Batch normalisation after each convolution,
    He initialisation, shortcuts of option A, as in the original for CIFAR.

    Args:
        input_shape: channels, height and width of one sample, at least 8 x 8 pixels.
        classes: C, the number of logits.
        blocks: n, the number of blocks per stage.
    """

    def __init__(self, input_shape: Sequence[int], classes: int, blocks: int) -> None:
        super().__init__()
        channels, _, _ = check_image_shape(f"resnet{6 * blocks + 2}", input_shape, smallest_side=8)
        layers: list[nn.Module] = [
            nn.Conv2d(channels, _WIDTHS[0], kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(_WIDTHS[0]),
            nn.ReLU(inplace=True),
        ]
        channels = _WIDTHS[0]
        for maps in _WIDTHS:
            for _ in range(blocks):
                layers.append(ResidualBlock(channels, maps, stride=1 if maps == channels else 2))
                channels = maps
        self.convolutions = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of inputs [N, channels, height, width]."""
        logits: Tensor = self.classifier(self.convolutions(inputs))
        return logits
