"""Other views of the server's images: the same picture, a little moved, has the same label."""

from __future__ import annotations

import torch
from torch import Tensor

#: The part of an image's side by which it moves at most: one pixel of 8, four of 28 and of 32.
LARGEST_MOVE = 1 / 8


def drawn_moves(number: int, images: Tensor, generator: torch.Generator) -> Tensor:
    """By how many rows and columns each of `number` images is to move, [number, 2]; for images [N, channels, H, W]."""
    most = torch.tensor([round(side * LARGEST_MOVE) for side in images.shape[2:]])
    return (torch.rand(number, 2, generator=generator) * (2 * most + 1)).floor().long() - most


def moved(images: Tensor, moves: Tensor) -> Tensor:
    """Each of the images [N, channels, H, W] moved by its rows and columns [N, 2]; edges repeat.

    >>> moved(torch.arange(4.0).reshape(1, 1, 2, 2), torch.tensor([[0, 1]]))
    tensor([[[[0., 0.],
              [2., 2.]]]])
    """
    number, channels, height, width = images.shape
    moves = moves.to(images.device)
    rows = (torch.arange(height, device=images.device) - moves[:, :1]).clamp(0, height - 1)
    columns = (torch.arange(width, device=images.device) - moves[:, 1:]).clamp(0, width - 1)
    sample = torch.arange(number, device=images.device)[:, None, None, None]
    channel = torch.arange(channels, device=images.device)[None, :, None, None]
    return images[sample, channel, rows[:, None, :, None], columns[:, None, None, :]]
