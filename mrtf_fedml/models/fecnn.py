"""FeCNN, LEAF's network for FEMNIST, which the paper uses for FeMnist.

S. Caldas, S. M. K. Duddu, P. Wu, T. Li, J. Konečný, H. B. McMahan, V. Smith, A. Talwalkar. LEAF: a benchmark for
federated settings. 2018 (models/femnist/cnn.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from .image_shape import image_shape


class FeCNN(nn.Module):
    """5x5 convolution of 32 maps, pool, 5x5 convolution of 64 maps, pool, 2048, C; ReLU and 2x2 max pooling.

    Padding keeps the size through each convolution, so 28 x 28 grey images and 62 classes make 6,603,710
    parameters.

    Args:
        input_shape: channels, height and width of one sample, at least 4 x 4 pixels.
        classes: C, the number of logits.
    """

    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        super().__init__()
        channels, height, width = image_shape("fecnn", input_shape, smallest_side=4)
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 32, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Sequential(
            nn.Linear(64 * (height // 4) * (width // 4), 2048), nn.ReLU(), nn.Linear(2048, classes)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of inputs [N, channels, height, width]."""
        logits: Tensor = self.head(self.convolutions(inputs))
        return logits
