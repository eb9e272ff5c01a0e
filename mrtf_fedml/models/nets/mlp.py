"""MLPNet, the paper's network for MNIST."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn


class MLPNet(nn.Module):
    """Input flattened -> `hidden_size` -> `hidden_size` -> `feature_size` -> C, with ReLU between.

    Args:
        input_shape: shape of one sample, of any number of dimensions.
        classes: C, the number of logits.
        feature_size: width of the last hidden layer, whose output is h(x). The paper takes 128, and 2 where
            it draws the features.
        hidden_size: width of the two layers before it. The paper takes 1024.
    """

    def __init__(
        self, input_shape: Sequence[int], classes: int, feature_size: int = 128, hidden_size: int = 1024
    ) -> None:
        super().__init__()
        self.hidden = nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(input_shape), hidden_size),
            nn.ReLU(inplace=True),
            nn.Linear(hidden_size, hidden_size),
            nn.ReLU(inplace=True),
            nn.Linear(hidden_size, feature_size),
            nn.ReLU(inplace=True),
        )
        self.classifier = nn.Linear(feature_size, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of inputs [N, *input_shape]."""
        logits: Tensor = self.classifier(self.hidden(inputs))
        return logits
