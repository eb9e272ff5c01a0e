"""Statistics of a federated dataset: the paper's table of samples and classes per client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader

from ..config import RunSettings
from ..rng import fork_rng
from .dataset import TransductiveDataset
from .preprocessing import StandardizedLoader
from .shards import TensorShard

#: A client observes a class if it has at least this many samples of it.
MIN_OBSERVED = 5

#: The number of samples that `sample_client_data` reads from all clients together.
_MAX_SAMPLES = 2000
_REREADABLE = (TensorShard, StandardizedLoader, DataLoader, list, tuple)


@dataclass(frozen=True, eq=False)
class Statistics:
    """The numbers of samples per client and class.

    Attributes:
        counts: n_{k,c} [K, C], the samples of class c that client k has.
        server_samples: M.
        class_names: one per class.
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
    def samples_per_client(self) -> npt.NDArray[np.int64]:
        """N_k [K]."""
        return self.counts.sum(axis=1)

    @property
    def classes_per_client(self) -> npt.NDArray[np.int64]:
        """C_k [K], the classes of which a client has at least `MIN_OBSERVED` samples."""
        return (self.counts >= MIN_OBSERVED).sum(axis=1)


def compute_statistics(dataset: TransductiveDataset) -> Statistics:
    """The statistics of a dataset, without the server's labels."""
    classes = dataset.class_num
    counts = np.stack([_class_counts(entry, classes) for entry in dataset[5].values()])
    return Statistics(counts, len(dataset.server_inputs), dataset.class_names)


def client_class_counts(dataset: TransductiveDataset, settings: RunSettings) -> npt.NDArray[np.int64] | None:
    """n_{k,c} [K, C] in a simulation whose clients 0 to K-1 are shards; else None.

    A user's own loader is not read for this, since it may be slow.
    """
    shards = dataset[5]
    if settings.common.training_type != "simulation" or not shards or list(shards) != list(range(len(shards))):
        return None
    if not all(isinstance(shard, TensorShard) for shard in shards.values()):
        return None
    return compute_statistics(dataset).counts


def sample_client_data(
    dataset: TransductiveDataset, settings: RunSettings
) -> tuple[torch.Tensor, torch.Tensor | None] | None:
    """Some of the clients' samples [N, ...], the same number from each, in a simulation; else None.

    With their labels [N], if each sample has one. Only loaders that can be read again are read.
    """
    clients = dataset[5]
    if settings.common.training_type != "simulation" or not clients:
        return None
    per_client = max(1, _MAX_SAMPLES // len(clients))
    with fork_rng(0, "known samples"):
        pairs = [_first_samples(entry, per_client) for entry in clients.values() if isinstance(entry, _REREADABLE)]
    parts = [(inputs, labels) for inputs, labels in pairs if len(inputs)]
    if not parts or len({inputs.shape[1:] for inputs, _ in parts}) != 1:
        return None
    has_labels = all(labels.shape == (len(inputs),) for inputs, labels in parts)
    return (
        torch.cat([inputs for inputs, _ in parts]),
        torch.cat([labels for _, labels in parts]) if has_labels else None,
    )


def _first_samples(entry: Any, limit: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Evenly spaced samples of a shard; the first samples of another loader."""
    if isinstance(entry, TensorShard):
        rows = torch.linspace(0, entry.samples - 1, min(limit, entry.samples)).long()
        return entry.inputs[entry.indices[rows]], entry.labels[rows]
    inputs, labels, count = [], [], 0
    for batch in entry:
        inputs.append(torch.as_tensor(batch[0]))
        labels.append(torch.as_tensor(batch[1]))
        count += len(inputs[-1])
        if count >= limit:
            break
    if not inputs:
        return torch.zeros(0), torch.zeros(0)
    return torch.cat(inputs)[:limit], torch.cat(labels)[:limit]


def _class_counts(entry: Any, classes: int) -> npt.NDArray[np.int64]:
    """The samples per class of one client: a shard or another loader of (x, y) batches."""
    if isinstance(entry, TensorShard):
        labels = entry.labels
    else:
        batches = [torch.as_tensor(y).reshape(-1) for _, y in entry or []]
        labels = torch.cat(batches).long() if batches else torch.zeros(0, dtype=torch.int64)
    return torch.bincount(labels, minlength=classes)[:classes].numpy()
