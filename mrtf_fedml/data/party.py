"""What one party of a federation across silos holds: the server its inputs, a silo its own shard, and no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..settings import RunSettings
from .examiner import Examiner
from .own_file import read_own_file
from .partition import partition
from .shards import TensorShard
from .sources import load_source
from .tensors import to_tensor
from .transductive import TransductiveDataset, load


class SiloDataset(list[Any]):
    """FedML's list of eight with one client's shard in it, and without the server's set."""

    def __init__(self, shard: TensorShard, client: int, class_num: int) -> None:
        self.class_num = class_num
        #: The shape of one sample, without the batch.
        self.input_shape = tuple(shard.inputs.shape[1:])
        samples, local = {client: shard.samples}, {client: shard}
        super().__init__([shard.samples, 0, None, None, samples, local, dict(local), class_num])


def load_for(settings: RunSettings, rank: int | None) -> TransductiveDataset | SiloDataset:
    """The data of the party of this rank: 0 is the server, r the silo of shard r-1, None whoever simulates all."""
    if rank is None:
        return load(settings)
    return _for_server(settings) if rank == 0 else _for_silo(settings, rank - 1)


def _for_server(settings: RunSettings) -> TransductiveDataset:
    """The server's inputs; the clients' samples are not kept."""
    own = settings.silo.own_data_file
    source = load_source(settings.data) if own is None else read_own_file(own, 0)
    return TransductiveDataset(
        train_num=0,
        train_global=None,
        train_local_num_dict={},
        train_local_dict={},
        test_local_dict={},
        server_inputs=to_tensor(source.x_test),
        examiner=None if source.y_test is None else Examiner(torch.from_numpy(source.y_test), source.class_names),
        ids=source.ids,
        class_names=source.class_names,
        batch_size=settings.train.batch_size,
    )


def _for_silo(settings: RunSettings, client: int) -> SiloDataset:
    """The silo's own file; or, in a try-out where every machine has all data, the rows of its shard and no others."""
    own = settings.silo.own_data_file
    if own is None:
        source = load_source(settings.data)
        seed = settings.data.partition_seed
        seed = settings.common.random_seed if seed is None else seed
        clients = settings.train.client_num_in_total
        # The split depends on the labels and the seed alone, so every party computes the same one.
        rows = partition(source.y_train, clients, source.class_num, settings.data, seed)[client]
    else:
        source = read_own_file(own, client + 1)
        rows = np.arange(len(source.y_train))
    inputs, labels = to_tensor(source.x_train[rows]), torch.from_numpy(source.y_train[rows])
    shard = TensorShard(inputs, labels, np.arange(len(rows)), settings.train.batch_size)
    return SiloDataset(shard, client, source.class_num)
