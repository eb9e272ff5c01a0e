"""Horizontal flips and padded crops, on whole batches of tensors.

For natural images alone: a mirrored digit is another sign.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Pixels of black around an image, inside which the crop of the old size is drawn.
PADDING = 4

#: The value of black after normalisation.
BLACK = -1.0


def augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each of the images [N, channels, H, W] mirrored by half a chance and shifted by up to `PADDING` pixels.

    All draws come from `generator`; the images given are not changed.

    >>> images = torch.zeros(2, 3, 8, 8)
    >>> augmented(images, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 8, 8])
    """
    number, channels, height, width = images.shape
    mirrored = torch.rand(number, generator=generator) < 0.5
    shifts = torch.randint(2 * PADDING + 1, (2, number, 1), generator=generator)
    rows = shifts[0] + torch.arange(height)
    columns = shifts[1] + torch.arange(width)
    # A mirrored crop reads its columns from the right.
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    padded = torch.nn.functional.pad(images, [PADDING] * 4, value=BLACK)
    sample, channel = torch.arange(number)[:, None, None, None], torch.arange(channels)[None, :, None, None]
    return padded[sample, channel, rows[:, None, :, None], columns[:, None, None, :]]
