"""The paper's table of dataset statistics, for any dataset and split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader

from ..randomness import forked
from ..settings import RunSettings
from .dataset import TransductiveDataset
from .preprocessing import ScaledLoader
from .shards import TensorShard

#: A class counts as observed by a client from so many samples on.
OBSERVED = 5

#: So many samples of all clients tell what kind they are.
_SOME = 2000
_READABLE = (TensorShard, ScaledLoader, DataLoader, list, tuple)


@dataclass(frozen=True, eq=False)
class Statistics:
    """Who has how much of what.

    Attributes:
        counts: n_{k,c} [K, C], the samples of class c that client k has.
        server_samples: M.
        class_names: one a class.
    """

    counts: npt.NDArray[np.int64]
    server_samples: int
    class_names: list[str]

    @property
    def samples(self) -> int:
        """N, the training samples of all clients."""
        return int(self.counts.sum())

    @property
    def clients(self) -> int:
        """K."""
        return len(self.counts)

    @property
    def classes(self) -> int:
        """C."""
        return len(self.class_names)

    @property
    def samples_a_client(self) -> npt.NDArray[np.int64]:
        """N_k [K]."""
        return self.counts.sum(axis=1)

    @property
    def classes_a_client(self) -> npt.NDArray[np.int64]:
        """C_k [K], the classes of which a client has at least `OBSERVED` samples."""
        return (self.counts >= OBSERVED).sum(axis=1)


def statistics_of(dataset: TransductiveDataset) -> Statistics:
    """What the table tells of a dataset; the server's labels have no part in it."""
    classes = dataset.class_num
    counts = np.stack([_counts(shard, classes) for shard in dataset[5].values()])
    return Statistics(counts, len(dataset.server_inputs), dataset.class_names)


def known_counts(dataset: TransductiveDataset, settings: RunSettings) -> npt.NDArray[np.int64] | None:
    """n_{k,c} [K, C] where a process plays the clients and holds their samples as shards; else None.

    Clients are numbered 0 to K-1 there. A loader of the user's own is not read for this: it may take its time.
    """
    shards = dataset[5]
    if settings.common.training_type != "simulation" or not shards or list(shards) != list(range(len(shards))):
        return None
    if not all(isinstance(shard, TensorShard) for shard in shards.values()):
        return None
    return statistics_of(dataset).counts


def known_samples(
    dataset: TransductiveDataset, settings: RunSettings
) -> tuple[torch.Tensor, torch.Tensor | None] | None:
    """Some of the clients' samples [N, ...], evenly from all, where a process plays the clients; else None.

    With their labels [N], where each has one. Of loaders only those are read that can be read again.
    """
    clients = dataset[5]
    if settings.common.training_type != "simulation" or not clients:
        return None
    each = max(1, _SOME // len(clients))
    with forked(0, "known samples"):
        read = [_some(entry, each) for entry in clients.values() if isinstance(entry, _READABLE)]
    parts = [(inputs, labels) for inputs, labels in read if len(inputs)]
    if not parts or len({inputs.shape[1:] for inputs, _ in parts}) != 1:
        return None
    has_labels = all(labels.shape == (len(inputs),) for inputs, labels in parts)
    return (
        torch.cat([inputs for inputs, _ in parts]),
        torch.cat([labels for _, labels in parts]) if has_labels else None,
    )


def _some(entry: Any, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    if isinstance(entry, TensorShard):
        chosen = torch.linspace(0, entry.samples - 1, min(most, entry.samples)).long()
        return entry.inputs[entry.indices[chosen]], entry.labels[chosen]
    batches, labels, read = [], [], 0
    for batch in entry:
        batches.append(torch.as_tensor(batch[0]))
        labels.append(torch.as_tensor(batch[1]))
        read += len(batches[-1])
        if read >= most:
            break
    if not batches:
        return torch.zeros(0), torch.zeros(0)
    return torch.cat(batches)[:most], torch.cat(labels)[:most]


def _counts(shard: Any, classes: int) -> npt.NDArray[np.int64]:
    """The samples a class of one client, from our shards or from any loader of (x, y) batches."""
    if isinstance(shard, TensorShard):
        labels = shard.labels
    else:
        batches = [torch.as_tensor(y).reshape(-1) for _, y in shard or []]
        labels = torch.cat(batches).long() if batches else torch.zeros(0, dtype=torch.int64)
    return torch.bincount(labels, minlength=classes)[:classes].numpy()
