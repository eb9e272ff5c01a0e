"""A client's samples as indices into tensors that all clients share, with the interface of a DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor]

#: Small batches are gathered several at a time, up to this many bytes, because each gather has a fixed cost.
_GATHER_BYTES = 1 << 20
#: PyTorch aligns tensors to this many bytes.
_ALIGNMENT = 64

#: Augmentation pads an image by this many black pixels and crops it to its size again.
PADDING = 4
#: The value of black after normalization.
BLACK = -1.0


class TensorShard:
    """One client's labelled samples; can be used where FedML iterates over a DataLoader.

    All shards share the tensors and copy only batches, so K clients need the memory of the data and of one index per
    sample.

    >>> inputs, labels = torch.zeros(5, 2), torch.arange(5)
    >>> shard = TensorShard(inputs, labels, np.array([4, 0, 2]), batch_size=2)
    >>> [labels.tolist() for _, labels in shard]
    [[4, 0, 2]]
    """

    def __init__(
        self,
        inputs: Tensor,
        labels: Tensor,
        indices: Tensor | npt.NDArray[np.int64],
        batch_size: int,
        augments: bool = False,
    ) -> None:
        #: All clients' inputs [N, ...]; this shard owns the rows `indices`.
        self.inputs = inputs
        self.indices = torch.as_tensor(indices, dtype=torch.int64)
        self.batch_size = batch_size
        #: Whether `shuffled_batches` flips and shifts the inputs, for natural images.
        self.augments = augments
        self._all_labels = labels

    @property
    def samples(self) -> int:
        """The number of samples of the client."""
        return len(self.indices)

    @property
    def labels(self) -> Tensor:
        """The client's labels, in the order of its indices."""
        return self._all_labels[self.indices]

    def map_inputs(self, function: Callable[[Tensor], Tensor]) -> TensorShard:
        """A shard with `function` applied to the inputs, which shares no tensor with other shards."""
        inputs, rows = function(self.inputs[self.indices]), np.arange(self.samples)
        return TensorShard(inputs, self.labels, rows, self.batch_size, self.augments)

    def part(self, rows: Tensor) -> TensorShard:
        """A shard of the samples at these positions, which shares the tensors."""
        return TensorShard(self.inputs, self._all_labels, self.indices[rows], self.batch_size, self.augments)

    def __len__(self) -> int:
        return len(_batch_bounds(self.samples, self.batch_size))

    def __iter__(self) -> Iterator[Batch]:
        return self._batches(self.indices)

    def shuffled_batches(self, generator: torch.Generator) -> Iterator[Batch]:
        """One pass over the samples in an order drawn from `generator`.

        The order and the seed of the augmentation are drawn at the call, not at the first batch, so that the caller
        can go on using the generator.
        """
        batches = self._batches(self.indices[torch.randperm(self.samples, generator=generator)])
        if not self.augments:
            return batches
        seed = int(torch.randint(2**62, (), generator=generator))
        augment_generator = torch.Generator().manual_seed(seed)
        return ((augment(inputs, augment_generator), labels) for inputs, labels in batches)

    def _batches(self, order: Tensor) -> Iterator[Batch]:
        bounds = _batch_bounds(self.samples, self.batch_size)
        batch_bytes = self.batch_size * self.inputs[:1].nbytes
        # The last bits of a matrix product depend on the alignment of its factors: every batch must be aligned as if
        # it had been gathered alone.
        per_gather = max(1, _GATHER_BYTES // batch_bytes) if batch_bytes and batch_bytes % _ALIGNMENT == 0 else 1
        for first in range(0, len(bounds), per_gather):
            group = bounds[first : first + per_gather]
            rows = order[group[0][0] : group[-1][1]]
            sizes = [stop - start for start, stop in group]
            yield from zip(self.inputs[rows].split(sizes), self._all_labels[rows].split(sizes), strict=True)


class UnlabelledSet:
    """The server's samples in order, each with the label -1, since FedML unpacks pairs.

    >>> [labels.tolist() for _, labels in UnlabelledSet(torch.zeros(3, 2), batch_size=8)]
    [[-1, -1, -1]]
    """

    def __init__(self, inputs: Tensor, batch_size: int) -> None:
        self.inputs = inputs
        self.batch_size = batch_size

    @property
    def samples(self) -> int:
        """The number of samples of the server."""
        return len(self.inputs)

    def __len__(self) -> int:
        return len(_batch_bounds(self.samples, self.batch_size))

    def __iter__(self) -> Iterator[Batch]:
        for start, stop in _batch_bounds(self.samples, self.batch_size):
            yield self.inputs[start:stop], torch.full((stop - start,), -1, dtype=torch.int64)


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each of the images [N, channels, H, W] flipped horizontally with probability 1/2 and shifted by a padded crop.

    For natural images only: a mirrored digit is another symbol. All draws come from `generator`; `images` is not
    written to.

    >>> images = torch.zeros(2, 3, 8, 8)
    >>> augment(images, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 8, 8])
    """
    number, channels, height, width = images.shape
    is_flipped = torch.rand(number, generator=generator) < 0.5
    shifts = torch.randint(2 * PADDING + 1, (2, number, 1), generator=generator)
    rows = shifts[0] + torch.arange(height)
    columns = shifts[1] + torch.arange(width)
    columns = torch.where(is_flipped[:, None], columns.flip(1), columns)
    padded = torch.nn.functional.pad(images, [PADDING] * 4, value=BLACK)
    sample, channel = torch.arange(number)[:, None, None, None], torch.arange(channels)[None, :, None, None]
    return padded[sample, channel, rows[:, None, :, None], columns[:, None, None, :]]


def _batch_bounds(samples: int, batch_size: int) -> list[tuple[int, int]]:
    """The first row of each batch and the row after its last.

    A last batch of one sample joins the one before it, since BatchNorm cannot train on a single sample.
    """
    starts = list(range(0, samples, batch_size))
    if batch_size > 1 and len(starts) > 1 and samples - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], samples], strict=False))
