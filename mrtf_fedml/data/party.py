"""What one party of a federation across silos holds: the server its inputs, a silo its own shard, and no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from ..settings import RunSettings
from .cross_domain import ServerPart, server_part, shortened
from .dataset import TransductiveDataset
from .examiner import Examiner
from .own_file import read_own_file
from .partition import warn_of_single_samples
from .preprocessing import Kind, Preprocessing, Scale, is_standardised, kind_of, preprocessing_of
from .rehearsal import refuse_rehearsal
from .shards import TensorShard
from .sources import Source, named_source
from .sources.memory import memory_of
from .tensors import to_tensor
from .transductive import divided, load


class SiloDataset(list[Any]):
    """FedML's list of eight with one client's shard in it, and without the server's set."""

    def __init__(self, entry: Any, samples: int, client: int, class_names: list[str], example_inputs: Tensor) -> None:
        self.class_names = class_names
        self.class_num = len(class_names)
        #: A few inputs [N, ...] of this silo's own, to try a model on.
        self.example_inputs = example_inputs
        local = {client: entry}
        super().__init__([samples, 0, None, None, {client: samples}, local, dict(local), self.class_num])

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample, without the batch."""
        return tuple(self.example_inputs.shape[1:])


def load_for(settings: RunSettings, rank: int | None) -> TransductiveDataset | SiloDataset:
    """The data of the party of this rank: 0 is the server, r the silo of shard r-1, None whoever simulates all."""
    if rank is None:
        return load(settings)
    if settings.data.rehearse is not None:
        refuse_rehearsal(settings)
    return _for_server(settings) if rank == 0 else _for_silo(settings, rank - 1)


def _for_server(settings: RunSettings) -> TransductiveDataset:
    """The server's inputs; the clients' samples are not kept."""
    own = settings.data.own_data_file
    if own is None and settings.data.loader is not None:
        whole = _all_clients(settings)
        return _server_alone(
            whole.server_inputs, whole.examiner, whole.ids, whole.class_names, settings, whole.preprocessing
        )
    if own is None:
        source, parts = _taking_part(settings)
        part = _server_part(source, settings, own)
        preprocessing = preprocessing_of(source, parts, settings, lambda: part.inputs)
    else:
        source = read_own_file(own, 0, memory_of(settings.data))
        part = _server_part(source, settings, own)
        preprocessing = _by_server_alone(part.inputs, kind_of(source), settings)
    inputs = part.inputs if preprocessing.scale is None else preprocessing.scale(part.inputs)
    examiner = None if part.labels is None else Examiner(torch.from_numpy(part.labels), source.class_names)
    return _server_alone(inputs, examiner, part.ids, source.class_names, settings, preprocessing)


def _by_server_alone(inputs: Tensor, kind: Kind, settings: RunSettings) -> Preprocessing:
    """Where every party has a file of its own, the server's inputs decide, and the silos are told with the weights.

    So nothing of a silo's samples leaves it for this, and all have one scale; each silo's own scale would move the
    samples of one class in different ways.
    """
    return Preprocessing(kind, Scale.of([inputs]) if is_standardised(settings, inputs, kind) else None)


def _server_part(source: Source, settings: RunSettings, own: str | None) -> ServerPart:
    if own is not None:
        part = ServerPart(to_tensor(source.x_test, source.tokens), source.y_test, source.ids)
        return shortened(part, settings.data)
    clients_shape = tuple(to_tensor(source.x_train[:1], source.tokens).shape[1:])
    return server_part(source, settings.data, clients_shape)


def _server_alone(
    inputs: Tensor,
    examiner: Examiner | None,
    ids: list[str],
    class_names: list[str],
    settings: RunSettings,
    preprocessing: Preprocessing,
) -> TransductiveDataset:
    return TransductiveDataset(
        train_num=0,
        train_global=None,
        train_local_num_dict={},
        train_local_dict={},
        test_local_dict={},
        server_inputs=inputs,
        examiner=examiner,
        ids=ids,
        class_names=class_names,
        batch_size=settings.train.batch_size,
        preprocessing=preprocessing,
    )


def _for_silo(settings: RunSettings, client: int) -> SiloDataset:
    """The silo's own file; or, in a try-out where every machine has all data, the rows of its shard and no others."""
    own = settings.data.own_data_file
    if own is None and settings.data.loader is not None:
        whole = _all_clients(settings)
        # A sample of the server's would be none of this silo's business: only its shape is kept.
        shape = torch.zeros_like(whole.server_inputs[:2])
        return SiloDataset(whole[5][client], whole[4][client], client, whole.class_names, shape)
    if own is None:
        # The split depends on the labels and the seed alone, so every party computes the same one.
        source, parts = _taking_part(settings)
        rows = parts[client]
    else:
        source = read_own_file(own, client + 1, memory_of(settings.data))
        rows = np.arange(len(source.y_train))
        warn_of_single_samples({client: len(rows)})
    inputs, labels = to_tensor(source.x_train[rows], source.tokens), torch.from_numpy(source.y_train[rows])
    if own is None:
        # In a try-out every machine has the server's samples too; nothing of them but a scale is kept.
        preprocessing = preprocessing_of(source, parts, settings, lambda: _server_part(source, settings, own).inputs)
        inputs = inputs if preprocessing.scale is None else preprocessing.scale(inputs)
    augments = source.augments and settings.data.augmentation == "auto"
    shard = TensorShard(inputs, labels, np.arange(len(rows)), settings.train.batch_size, augments)
    return SiloDataset(shard, shard.samples, client, source.class_names, inputs)


def _taking_part(settings: RunSettings) -> tuple[Source, list[Any]]:
    source, parts = divided(named_source(settings.data), settings)
    _check_silos(len(parts), settings)
    return source, parts


def _all_clients(settings: RunSettings) -> TransductiveDataset:
    whole = load(settings)
    _check_silos(whole.client_num, settings)
    return whole


def _check_silos(clients: int, settings: RunSettings) -> None:
    """Across silos the number of parties is agreed upon beforehand; the data cannot change it for one of them."""
    agreed = settings.train.client_num_in_total
    if clients != agreed:
        raise UserError(
            f"the data have {clients} clients but train_args.client_num_in_total is {agreed}; across silos set it to "
            f"{clients} for every party"
        )
