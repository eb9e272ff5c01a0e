"""ConvNet, the convolutional network of FedAvg's paper, which the paper uses for SVHN.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas. Communication-efficient learning of deep
networks from decentralized data. AISTATS 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from ..checks import check_image_shape


class ConvNet(nn.Module):
    """5x5 convolution of 32 maps, pool, 5x5 convolution of 64 maps, pool, 512, C; ReLU and 2x2 max pooling.

    Padding keeps the size through each convolution, so 28 x 28 grey images and ten classes make the 1,663,370
    parameters that FedAvg's paper reports.

    Args:
        input_shape: channels, height and width of one sample, at least 4 x 4 pixels.
        classes: C, the number of logits.
    """

    name: ClassVar[str] = "convnet"
    hidden: ClassVar[int] = 512

    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        super().__init__()
        channels, height, width = check_image_shape(self.name, input_shape, smallest_side=4)
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 32, kernel_size=5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, kernel_size=5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Sequential(
            nn.Linear(64 * (height // 4) * (width // 4), self.hidden),
            nn.ReLU(inplace=True),
            nn.Linear(self.hidden, classes),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of inputs [N, channels, height, width]."""
        logits: Tensor = self.head(self.convolutions(inputs))
        return logits
