"""LeNet, the paper's network for MNIST-M.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner. Gradient-based learning applied to document recognition.
Proceedings of the IEEE, 1998.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ..checks import check_image_shape

#: Side of the last map in the original, which takes 32 x 32 pixels without padding.
_CLASSIC_SIDE = 5


class LeNet(nn.Module):
    """5x5 convolution of 6 maps, pool, 5x5 convolution of 16 maps, pool, 120, 84, C; ReLU and max pooling.

    At 32 x 32 this is the original; at 28 x 28 the first convolution is padded by 2, as the original pads
    MNIST, so that both flatten to 400. Smaller images are padded in both convolutions, which keeps the size,
    down to 4 x 4.

    Args:
        input_shape: channels, height and width of one sample.
        classes: C, the number of logits.
    """

    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        super().__init__()
        channels, height, width = check_image_shape("lenet", input_shape, smallest_side=4)
        paddings = _paddings(min(height, width))
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 6, kernel_size=5, padding=paddings[0]),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, kernel_size=5, padding=paddings[1]),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Sequential(
            nn.Linear(16 * _last_side(height, paddings) * _last_side(width, paddings), 120),
            nn.ReLU(inplace=True),
            nn.Linear(120, 84),
            nn.ReLU(inplace=True),
            nn.Linear(84, classes),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of inputs [N, channels, height, width]."""
        logits: Tensor = self.head(self.convolutions(inputs))
        return logits


def _paddings(side: int) -> tuple[int, int]:
    """The smallest padding of the two convolutions that gives a map of the original's size, if any does."""
    for paddings in ((0, 0), (2, 0)):
        if _last_side(side, paddings) >= _CLASSIC_SIDE:
            return paddings
    return (2, 2)


def _last_side(side: int, paddings: tuple[int, int]) -> int:
    for padding in paddings:
        side = (side + 2 * padding - 4) // 2
    return side
