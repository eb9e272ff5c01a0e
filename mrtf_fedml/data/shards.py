"""A client's samples as indices into tensors that all clients share, in the shape of a DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .augmentation import augmented

Batch = tuple[Tensor, Tensor]

#: Small batches are copied out several at a time, up to so many bytes: to copy ten vectors costs a call, and no more.
_TOGETHER = 1 << 20
#: Where PyTorch lets a tensor begin, in bytes.
_BOUNDARY = 64


class TensorShard:
    """One client's labelled samples; serves wherever FedML iterates a DataLoader.

    The tensors are shared by all shards and only batches are copied out of them, so K clients cost the memory
    of the data and of one index a sample.

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
        #: All clients' inputs [N, ...], of which this shard owns the rows `indices`.
        self.inputs = inputs
        self.indices = torch.as_tensor(indices, dtype=torch.int64)
        self.batch_size = batch_size
        #: Whether the batches of `shuffled_batches` are mirrored and shifted, as natural images may be.
        self.augments = augments
        self._all_labels = labels

    @property
    def samples(self) -> int:
        """How many samples the client owns."""
        return len(self.indices)

    @property
    def labels(self) -> Tensor:
        """The client's own labels, in the order of its indices."""
        return self._all_labels[self.indices]

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> TensorShard:
        """The same samples with `scale` applied to their inputs, in a shard that shares nothing with others'."""
        inputs, rows = scale(self.inputs[self.indices]), np.arange(self.samples)
        return TensorShard(inputs, self.labels, rows, self.batch_size, self.augments)

    def part(self, rows: Tensor) -> TensorShard:
        """The samples of these places, in a shard that shares the tensors."""
        return TensorShard(self.inputs, self._all_labels, self.indices[rows], self.batch_size, self.augments)

    def __len__(self) -> int:
        return len(_spans(self.samples, self.batch_size))

    def __iter__(self) -> Iterator[Batch]:
        return self._batches(self.indices)

    def shuffled_batches(self, generator: torch.Generator) -> Iterator[Batch]:
        """One pass over the samples in an order drawn from `generator`, and from nothing else.

        The order is drawn at the call, not at the first batch, so that generators can be handed on. So is the
        seed of what augments the batches.
        """
        batches = self._batches(self.indices[torch.randperm(self.samples, generator=generator)])
        if not self.augments:
            return batches
        seed = int(torch.randint(2**62, (), generator=generator))
        own = torch.Generator().manual_seed(seed)
        return ((augmented(inputs, own), labels) for inputs, labels in batches)

    def _batches(self, order: Tensor) -> Iterator[Batch]:
        spans = _spans(self.samples, self.batch_size)
        size = self.batch_size * self.inputs[:1].nbytes
        # A product's last bits depend on where its factors begin: every batch begins as one of its own would.
        together = max(1, _TOGETHER // size) if size and size % _BOUNDARY == 0 else 1
        for first in range(0, len(spans), together):
            some = spans[first : first + together]
            chosen = order[some[0][0] : some[-1][1]]
            sizes = [stop - start for start, stop in some]
            yield from zip(self.inputs[chosen].split(sizes), self._all_labels[chosen].split(sizes), strict=True)


class UnlabelledSet:
    """The server's samples in order, each with the label -1, since FedML unpacks two.

    >>> [labels.tolist() for _, labels in UnlabelledSet(torch.zeros(3, 2), batch_size=8)]
    [[-1, -1, -1]]
    """

    def __init__(self, inputs: Tensor, batch_size: int) -> None:
        self.inputs = inputs
        self.batch_size = batch_size

    @property
    def samples(self) -> int:
        """How many samples the server has."""
        return len(self.inputs)

    def __len__(self) -> int:
        return len(_spans(self.samples, self.batch_size))

    def __iter__(self) -> Iterator[Batch]:
        for start, stop in _spans(self.samples, self.batch_size):
            yield self.inputs[start:stop], torch.full((stop - start,), -1, dtype=torch.int64)


def _spans(samples: int, batch_size: int) -> list[tuple[int, int]]:
    """Where each batch starts and stops.

    A last batch of one joins the one before it, since BatchNorm cannot train on a single sample.
    """
    starts = list(range(0, samples, batch_size))
    if batch_size > 1 and len(starts) > 1 and samples - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], samples], strict=False))
