"""Arrays to tensors, once for a run: nothing is converted again when a batch is drawn."""

from __future__ import annotations

import numpy as np
import torch

from .sources.source import Array

#: Grey, colour, and colour with transparency: an axis of such a size is taken for the channels.
CHANNELS = (1, 3, 4)


def to_tensor(array: Array) -> torch.Tensor:
    """The samples [N, ...] as a new float32 tensor, images with their channels first.

    uint8 images [N, H, W] or [N, H, W, channels] become [N, channels, H, W], x/255 and then (x - 0.5)/0.5, so
    that black is -1 and white is 1. Other numbers keep their values; [N, H, W] gets a channel axis. An array
    of four axes is taken for channels-last or channels-first by the axis whose size is one of `CHANNELS`;
    where neither or both are, uint8 is channels-last (as image libraries give it) and the rest channels-first
    (as torch wants it).

    >>> to_tensor(np.array([[[0, 255]]], dtype=np.uint8)).tolist()
    [[[[-1.0, 1.0]]]]
    """
    is_bytes = array.dtype == np.uint8
    tensor = torch.from_numpy(array.astype(np.float32))
    if is_bytes and array.ndim >= 3:
        tensor = tensor.div_(255).sub_(0.5).div_(0.5)
    if tensor.ndim == 3:
        return tensor.unsqueeze(1)
    if tensor.ndim == 4 and _channels_last(array.shape[1], array.shape[3], is_bytes):
        return tensor.permute(0, 3, 1, 2).contiguous()
    return tensor


def _channels_last(second: int, last: int, otherwise: bool) -> bool:
    if (second in CHANNELS) == (last in CHANNELS):
        return otherwise
    return last in CHANNELS
