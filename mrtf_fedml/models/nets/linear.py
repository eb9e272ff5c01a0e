"""A linear classifier, on the inputs or on random features of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class LinearNet(nn.Module):
    """Input flattened -> C.

    Args:
        input_shape: shape of one sample, of any number of dimensions.
        classes: C, the number of logits.
    """

    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(math.prod(input_shape), classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of inputs [N, *input_shape]."""
        logits: Tensor = self.classifier(inputs.flatten(1))
        return logits


class RandomFeatureNet(nn.Module):
    """Input flattened -> h(x) = max(0, A x + a) -> C; A and a are drawn once and never trained.

    Args:
        input_shape: shape of one sample, of any number of dimensions.
        classes: C, the number of logits.
        features: D, the number of random features.
    """

    projection: Tensor
    offset: Tensor

    def __init__(self, input_shape: Sequence[int], classes: int, features: int = 1024) -> None:
        super().__init__()
        numbers = math.prod(input_shape)
        # Buffers and not parameters: they are part of the model, and no optimizer changes them.
        self.register_buffer("projection", torch.randn(features, numbers) / math.sqrt(numbers))
        self.register_buffer("offset", torch.randn(features))
        self.classifier = nn.Linear(features, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of inputs [N, *input_shape]."""
        features = nn.functional.relu(nn.functional.linear(inputs.flatten(1), self.projection, self.offset))
        logits: Tensor = self.classifier(features)
        return logits
