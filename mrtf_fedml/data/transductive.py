"""The transductive loader: clients' labelled shards, the server's inputs, the examiner's sealed labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..errors import UserError
from ..randomness import forked
from ..settings import RunSettings
from .cross_domain import server_part
from .dataset import TransductiveDataset
from .examiner import Examiner
from .listing import listed
from .loader import call_loader
from .partition import by_user, partition, warn_of_single_samples
from .preprocessing import Preprocessing, Scale, is_standardised, preprocessing_of, scaled_entry
from .rehearsal import rehearsed
from .server_set import read_server_set
from .shards import TensorShard
from .sources import Source, checked_source, named_source
from .sources.reading import first_line
from .tensors import to_tensor
from .users import with_chosen_users, with_fewer_samples


def load(settings: RunSettings) -> TransductiveDataset:
    """The data of a run: the user's own loader where there is one, else source, tensors, split.

    The split is seeded by `partition_seed`, or by `random_seed` where that is not given. A client's local
    test data are its own shard: no client sees the server's inputs. Where a rehearsal is asked for, samples of the
    clients stand in for the server's.
    """
    return rehearsed(_loaded(settings), settings)


def _loaded(settings: RunSettings) -> TransductiveDataset:
    if settings.data.loader is None:
        return from_source(named_source(settings.data), settings)
    loaded = call_loader(settings.data.loader, settings)
    if isinstance(loaded, Source):
        return from_source(_checked_again(loaded), settings)
    for key in ("server_samples", "client_samples"):
        if getattr(settings.data, key) is not None:
            raise UserError(f"data_args.{key} cannot shorten what data_args.loader returns; let the loader do it")
    return standardised(from_fedml(loaded), settings)


def from_source(source: Source, settings: RunSettings) -> TransductiveDataset:
    """The samples of a source, split over clients."""
    data, batch_size = settings.data, settings.train.batch_size
    source, parts = divided(source, settings)
    inputs, labels = to_tensor(source.x_train, source.tokens), torch.from_numpy(source.y_train)
    server = server_part(source, data, tuple(inputs.shape[1:]))
    preprocessing = preprocessing_of(source, parts, settings, lambda: server.inputs)
    scale = preprocessing.scale or torch.nn.Identity()
    inputs = scale(inputs)
    augments = source.augments and data.augmentation == "auto"
    shards = {k: TensorShard(inputs, labels, indices, batch_size, augments) for k, indices in enumerate(parts)}
    everything = TensorShard(inputs, labels, np.sort(np.concatenate(parts)), batch_size, augments)
    return TransductiveDataset(
        train_num=everything.samples,
        train_global=everything,
        train_local_num_dict={client: shard.samples for client, shard in shards.items()},
        train_local_dict=shards,
        test_local_dict=dict(shards),
        server_inputs=scale(server.inputs),
        examiner=None if server.labels is None else Examiner(torch.from_numpy(server.labels), source.class_names),
        ids=server.ids,
        class_names=source.class_names,
        batch_size=batch_size,
        preprocessing=preprocessing,
    )


def standardised(dataset: TransductiveDataset, settings: RunSettings) -> TransductiveDataset:
    """The clients of a loader's own and its server's set, brought to the scale of the clients' samples."""
    clients = dataset[5]
    if not isinstance(clients, Mapping) or not is_standardised(settings, dataset.server_inputs, "numbers"):
        return dataset
    with forked(0, "scale of features"):
        theirs = (torch.as_tensor(x) for _, client in sorted(clients.items()) for x, _ in client or ())
        scale = Scale.of([dataset.server_inputs] if settings.privacy.active else theirs)
    tests = dataset[6]
    return TransductiveDataset(
        train_num=dataset[0],
        train_global=scaled_entry(dataset[2], scale),
        train_local_num_dict=dataset[4],
        train_local_dict={client: scaled_entry(entry, scale) for client, entry in clients.items()},
        test_local_dict={client: scaled_entry(entry, scale) for client, entry in tests.items()}
        if isinstance(tests, Mapping)
        else tests,
        server_inputs=scale(dataset.server_inputs),
        examiner=dataset.examiner,
        ids=dataset.ids,
        class_names=dataset.class_names,
        batch_size=dataset[3].batch_size,
        preprocessing=Preprocessing("numbers", scale),
    )


def divided(source: Source, settings: RunSettings) -> tuple[Source, list[npt.NDArray[np.int64]]]:
    """The samples that take part, and each client's rows of them; the same for every party that computes it."""
    data = settings.data
    seed = settings.common.random_seed if data.partition_seed is None else data.partition_seed
    source = with_chosen_users(with_fewer_samples(source, data), data, seed)
    if data.partition_method == "user" and source.users is not None:
        parts = by_user(source.users.train, len(source.users.names))
    else:
        parts = partition(source.y_train, settings.train.client_num_in_total, source.class_num, data, seed)
    warn_of_single_samples({client: len(rows) for client, rows in enumerate(parts)})
    return source, parts


def _checked_again(source: Source) -> Source:
    """A source that a user made by hand, checked as those are that we read."""
    fields = {field.name: getattr(source, field.name) for field in dataclasses.fields(source)}
    name = str(fields.pop("name"))
    for key in ("x_train", "y_train", "x_test", "y_test"):
        if fields[key] is not None:
            try:
                fields[key] = np.asarray(fields[key])
            # A list of rows of different lengths, a tensor on a GPU, a column of a table of another library.
            except Exception as error:
                raise UserError(f"the data of {name}: {key} is no array ({first_line(error)}); give one") from error
    return checked_source(name, f"the data of {name}", **fields)


def from_fedml(dataset: Any) -> TransductiveDataset:
    """Any FedML dataset of eight entries, its `test_global` made the server's set and its labels sealed.

    The clients' entries stay as they are, with one exception: a local test set that is the server's set
    itself, which several of FedML's loaders hand to every client, gives way to the client's own training
    data.
    """
    if isinstance(dataset, TransductiveDataset):
        return dataset
    if not isinstance(dataset, tuple | list) or len(dataset) != 8:
        raise UserError("the dataset is not FedML's tuple of eight entries; return what fedml.data.load returns")
    train_num, _, train_global, test_global, local_nums, train_local, test_local, classes = dataset
    if not isinstance(classes, int | np.integer) or isinstance(classes, bool) or classes < 2:
        raise UserError(
            f"the dataset's class_num (its last entry) is {classes!r}; give the number of classes, at least 2"
        )
    if isinstance(local_nums, Mapping):
        empty = [client for client, number in local_nums.items() if number == 0]
        if empty:
            raise UserError(
                f"client {listed(empty)} of the dataset has no training samples; leave it out or give it some"
            )
        warn_of_single_samples(local_nums)
    server = read_server_set(test_global)
    names = [str(index) for index in range(int(classes))]
    return TransductiveDataset(
        train_num=train_num,
        train_global=train_global,
        train_local_num_dict=local_nums,
        train_local_dict=train_local,
        test_local_dict=_without_server_set(test_local, train_local, test_global),
        server_inputs=server.inputs,
        examiner=None if server.labels is None else Examiner(server.labels, names),
        ids=[str(index) for index in range(len(server.inputs))],
        class_names=names,
        batch_size=server.batch_size,
    )


def _without_server_set(test_local: Any, train_local: Any, test_global: Any) -> Any:
    if not isinstance(test_local, Mapping) or not isinstance(train_local, Mapping):
        return test_local
    samples = getattr(test_global, "dataset", test_global)
    return {
        client: train_local.get(client) if getattr(entry, "dataset", entry) is samples else entry
        for client, entry in test_local.items()
    }
