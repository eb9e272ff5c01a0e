"""MLPNet, the paper's network for MNIST."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn


class MLPNet(nn.Module):
    """Input flattened -> 1024 -> 1024 -> `feature_size` -> C, with ReLU between.

    Args:
        input_shape: shape of one sample, of any number of dimensions.
        classes: C, the number of logits.
        feature_size: width of the last hidden layer, whose output is h(x). The paper takes 128, and 2 where
            it draws the features.
    """

    def __init__(self, input_shape: Sequence[int], classes: int, feature_size: int = 128) -> None:
        super().__init__()
        self.hidden = nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(input_shape), 1024),
            nn.ReLU(),
            nn.Linear(1024, 1024),
            nn.ReLU(),
            nn.Linear(1024, feature_size),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(feature_size, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of inputs [N, *input_shape]."""
        logits: Tensor = self.classifier(self.hidden(inputs))
        return logits
