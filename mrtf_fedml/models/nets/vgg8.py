"""VGG8, the paper's network for CIFAR-10 and CIFAR-100.

K. Simonyan, A. Zisserman. Very deep convolutional networks for large-scale image recognition. ICLR 2015. The
MrTF paper shortens it to five convolutions and three fully connected layers.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ..checks import check_image_shape

_WIDTHS = (64, 128, 256, 512, 512)
_HIDDEN = 512


class VGG8(nn.Module):
    """3x3 convolutions of 64, 128, 256, 512 and 512 maps, each pooled 2x2; then 512, 512, C; ReLU throughout.

    No normalisation, as in the original. A map is pooled while both its sides have at least two pixels, so that all
    images from 8 x 8 to below 64 x 64 flatten to 512 features.

    Args:
        input_shape: channels, height and width of one sample, at least 8 x 8 pixels.
        classes: C, the number of logits.
    """

    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        super().__init__()
        channels, height, width = check_image_shape("vgg8", input_shape, smallest_side=8)
        layers: list[nn.Module] = []
        for maps in _WIDTHS:
            layers += [nn.Conv2d(channels, maps, kernel_size=3, padding=1), nn.ReLU(inplace=True)]
            if min(height, width) >= 2:
                layers.append(nn.MaxPool2d(2))
                height, width = height // 2, width // 2
            channels = maps
        self.convolutions = nn.Sequential(*layers, nn.Flatten())
        self.head = nn.Sequential(
            nn.Linear(channels * height * width, _HIDDEN),
            nn.ReLU(inplace=True),
            nn.Linear(_HIDDEN, _HIDDEN),
            nn.ReLU(inplace=True),
            nn.Linear(_HIDDEN, classes),
        )
        for module in [*self.convolutions, *self.head[:-1]]:
            # PyTorch's default scale shrinks the signal from layer to layer, which matters in eight layers without
            # normalisation.
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of inputs [N, channels, height, width]."""
        logits: Tensor = self.head(self.convolutions(inputs))
        return logits
