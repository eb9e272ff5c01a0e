"""Arrays to tensors, once for a run: nothing is converted again when a batch is drawn."""

from __future__ import annotations

import numpy as np
import torch

from .sources.source import Array

#: Grey, colour, and colour with transparency: an axis of such a size is taken for the channels.
CHANNELS = (1, 3, 4)

#: What normalises every image, of every dataset: x/255 less the first, divided by the second. The same for all,
#: so that the clients' and the server's images stay comparable where they come from two datasets, and so that
#: nobody has to know the others' mean.
MEAN, DEVIATION = 0.5, 0.5


def to_tensor(array: Array, tokens: bool = False) -> torch.Tensor:
    """The samples [N, ...] as a new float32 tensor, images with their channels first.

    uint8 images [N, H, W] or [N, H, W, channels] become [N, channels, H, W], x/255 and then (x - 0.5)/0.5, so
    that black is -1 and white is 1. Other numbers keep their values; [N, H, W] gets a channel axis. An array
    of four axes is taken for channels-last or channels-first by the axis whose size is one of `CHANNELS`;
    where neither or both are, uint8 is channels-last (as image libraries give it) and the rest channels-first
    (as torch wants it). `tokens` are indices and become int64.

    >>> to_tensor(np.array([[[0, 255]]], dtype=np.uint8)).tolist()
    [[[[-1.0, 1.0]]]]
    """
    if tokens:
        return torch.from_numpy(array.astype(np.int64))
    is_bytes = array.dtype == np.uint8
    if array.ndim == 4 and _channels_last(array.shape[1], array.shape[3], is_bytes):
        array = array.transpose(0, 3, 1, 2)
    # One copy, in the order in which it stays: the bytes and the floats are all that is in memory.
    tensor = torch.from_numpy(array.astype(np.float32, order="C"))
    if is_bytes and array.ndim >= 3:
        tensor = tensor.div_(255).sub_(MEAN).div_(DEVIATION)
    return tensor.unsqueeze(1) if tensor.ndim == 3 else tensor


def _channels_last(second: int, last: int, otherwise: bool) -> bool:
    if (second in CHANNELS) == (last in CHANNELS):
        return otherwise
    return last in CHANNELS
