"""The data of one party of a cross-silo federation: the server has its inputs, a silo its own shard."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..config import RunSettings
from ..encoders import Encoder, Samples
from ..errors import UserError
from .dataset import TransductiveDataset
from .evaluator import SealedEvaluator
from .holdout import reject_holdout
from .known_labels import attach_labels_file
from .loader import load, partition_source
from .partitioning import warn_about_single_samples
from .preprocessing import (
    Preprocessing,
    Standardizer,
    encode_samples,
    fit_preprocessing,
    input_kind,
    load_run_encoder,
    should_standardize,
    to_samples,
    to_tensor,
)
from .server_set import ServerSet, load_server_set, subsample_server_set
from .shards import TensorShard
from .sources import Source, load_run_source
from .sources.party_file import read_party_file


class SiloDataset(list[Any]):
    """FedML's list of eight entries with one client's shard and without the server's set."""

    def __init__(
        self,
        entry: Any,
        samples: int,
        client: int,
        class_names: list[str],
        example_inputs: Tensor,
        features: list[str] | None = None,
        encoder_digest: str | None = None,
    ) -> None:
        self.class_names = class_names
        #: The names of a table's features, in the model's order; None without names.
        self.features = features
        #: Of the encoder that has encoded the samples; None without one.
        self.encoder_digest = encoder_digest
        self.class_num = len(class_names)
        #: Inputs [N, ...] of this silo, on which a model can be tried.
        self.example_inputs = example_inputs
        local = {client: entry}
        super().__init__([samples, 0, None, None, {client: samples}, local, dict(local), self.class_num])

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample, without the batch axis."""
        return tuple(self.example_inputs.shape[1:])


def load_for_rank(settings: RunSettings, rank: int | None) -> TransductiveDataset | SiloDataset:
    """The data of the party of this rank: 0 is the server, r the silo of shard r-1, None a simulation of all."""
    if rank is not None and settings.data.holdout is not None:
        reject_holdout(settings)
    if rank is not None and rank > 0:
        return _load_for_silo(settings, rank - 1)
    dataset = load(settings) if rank is None else _load_for_server(settings)
    attach_labels_file(dataset, settings.data)
    return dataset


def _load_for_server(settings: RunSettings) -> TransductiveDataset:
    """The server's inputs, without the clients' samples."""
    party_file = settings.data.own_data_file
    if party_file is None and settings.data.loader is not None:
        dataset = _load_all_clients(settings)
        return _make_server_dataset(
            dataset.server_inputs,
            dataset.evaluator,
            dataset.ids,
            dataset.class_names,
            settings,
            dataset.preprocessing,
        )
    if party_file is None:
        source, parts = _load_partitioned_source(settings)
        server = _load_server_set(source, settings, party_file)
        encoder = load_run_encoder(settings, input_kind(source))
        inputs = encode_samples(encoder, server.inputs)
        preprocessing = fit_preprocessing(
            source,
            parts,
            settings,
            encoder,
            lambda: encode_samples(encoder, to_samples(source.x_train, source.tokens)),
            lambda: inputs,
        )
    else:
        source = read_party_file(settings.data, 0)
        server = _load_server_set(source, settings, party_file)
        encoder = load_run_encoder(settings, input_kind(source))
        inputs = encode_samples(encoder, server.inputs)
        preprocessing = _fit_on_server_inputs(server.inputs, inputs, source, encoder, settings)
    inputs = inputs if preprocessing.standardizer is None else preprocessing.standardizer(inputs)
    evaluator = None
    if server.labels is not None:
        evaluator = SealedEvaluator(torch.from_numpy(server.labels), source.class_names)
    return _make_server_dataset(inputs, evaluator, server.ids, source.class_names, settings, preprocessing)


def _fit_on_server_inputs(
    samples: Samples, inputs: Tensor, source: Source, encoder: Encoder | None, settings: RunSettings
) -> Preprocessing:
    """If every party has its own file, the server's inputs define the standardization, which is sent with the weights.

    So no statistic of a silo's samples leaves the silo, and all parties use the same mean and deviation. A separate
    standardization per silo would shift the samples of one class in different ways.
    """
    kind = input_kind(source)
    standardizer = Standardizer.fit([inputs]) if should_standardize(settings, samples, kind, encoder) else None
    return Preprocessing(kind, standardizer, source.features, source.columns, encoder, tuple(samples.shape[1:]))


def _load_server_set(source: Source, settings: RunSettings, party_file: str | None) -> ServerSet:
    if party_file is not None:
        server_set = ServerSet(to_samples(source.x_test, source.tokens), source.y_test, source.ids)
        return subsample_server_set(server_set, settings.data)
    clients_shape = tuple(to_samples(source.x_train[:1], source.tokens).shape[1:])
    return load_server_set(source, settings.data, clients_shape)


def _make_server_dataset(
    inputs: Tensor,
    evaluator: SealedEvaluator | None,
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
        evaluator=evaluator,
        ids=ids,
        class_names=class_names,
        batch_size=settings.train.batch_size,
        preprocessing=preprocessing,
    )


def _load_for_silo(settings: RunSettings, client: int) -> SiloDataset:
    """The silo's own file; or, if every machine has all data (for trials), only the rows of its shard."""
    party_file = settings.data.own_data_file
    if party_file is None and settings.data.loader is not None:
        dataset = _load_all_clients(settings)
        # A silo must not keep a sample of the server: only the shape is kept.
        example = torch.zeros_like(dataset.server_inputs[:2])
        return SiloDataset(
            dataset[5][client],
            dataset[4][client],
            client,
            dataset.class_names,
            example,
            encoder_digest=dataset.encoder_digest,
        )
    if party_file is None:
        # The partition depends only on the labels and the seed, so every party computes the same one.
        source, parts = _load_partitioned_source(settings)
        rows = parts[client]
    else:
        source = read_party_file(settings.data, client + 1)
        rows = np.arange(len(source.y_train))
        warn_about_single_samples({client: len(rows)})
    encoder, labels = load_run_encoder(settings, input_kind(source)), torch.from_numpy(source.y_train[rows])
    if party_file is None:
        # In a trial every machine has all samples; of the others only their mean and deviation are kept.
        def all_inputs() -> Tensor:
            return encode_samples(encoder, to_samples(source.x_train, source.tokens))

        preprocessing = fit_preprocessing(
            source,
            parts,
            settings,
            encoder,
            all_inputs,
            lambda: encode_samples(encoder, _load_server_set(source, settings, party_file).inputs),
        )
        # All samples are encoded together, as in one process: the last bits depend on the batches.
        inputs = to_tensor(source.x_train[rows], source.tokens) if encoder is None else all_inputs()[rows]
        inputs = inputs if preprocessing.standardizer is None else preprocessing.standardizer(inputs)
    else:
        inputs = encode_samples(encoder, to_samples(source.x_train[rows], source.tokens))
    augments = source.augments and settings.data.augmentation == "auto" and encoder is None
    shard = TensorShard(inputs, labels, np.arange(len(rows)), settings.train.batch_size, augments)
    digest = None if encoder is None else encoder.digest
    return SiloDataset(shard, shard.samples, client, source.class_names, inputs, source.features, digest)


def _load_partitioned_source(settings: RunSettings) -> tuple[Source, list[Any]]:
    source, parts = partition_source(load_run_source(settings.data), settings)
    _check_client_num(len(parts), settings)
    return source, parts


def _load_all_clients(settings: RunSettings) -> TransductiveDataset:
    dataset = load(settings)
    _check_client_num(dataset.client_num, settings)
    return dataset


def _check_client_num(clients: int, settings: RunSettings) -> None:
    """Across silos the number of parties is fixed in the configuration; the data cannot change it for one party."""
    configured = settings.train.client_num_in_total
    if clients != configured:
        raise UserError(
            f"the data have {clients} clients but train_args.client_num_in_total is {configured}; across silos set it "
            f"to {clients} for every party"
        )
