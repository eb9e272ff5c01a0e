"""Loads a run's dataset: from `data_args.dataset`, from the user's function `data_args.loader`, or from FedML."""

from __future__ import annotations

import dataclasses
import inspect
import traceback
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..config import RunSettings
from ..config.user_code import import_object
from ..errors import UserError
from ..rng import fork_rng
from .dataset import TransductiveDataset
from .evaluator import SealedEvaluator
from .formatting import format_list
from .holdout import apply_holdout
from .partitioning import partition_by_user, partition_samples, warn_about_single_samples
from .preprocessing import (
    Preprocessing,
    Standardizer,
    encode_samples,
    fit_preprocessing,
    input_kind,
    load_run_encoder,
    reject_encoder,
    should_standardize,
    standardize_entry,
    to_samples,
)
from .server_set import load_server_set, read_test_global
from .shards import TensorShard
from .sources import Source, load_run_source, make_source
from .sources.files import first_line
from .subsampling import select_users, subsample_clients


def load(settings: RunSettings) -> TransductiveDataset:
    """The dataset of a run.

    The partition is seeded with `partition_seed`, or with `random_seed` if that is not set. A client's local test
    data are its own shard: no client sees the server's inputs. With `holdout`, samples of the clients replace the
    server's.
    """
    return apply_holdout(_load_without_holdout(settings), settings)


def _load_without_holdout(settings: RunSettings) -> TransductiveDataset:
    if settings.data.loader is None:
        return from_source(load_run_source(settings.data), settings)
    loaded = call_loader(settings.data.loader, settings)
    if isinstance(loaded, Source):
        return from_source(_validate_source(loaded), settings)
    for key in ("server_samples", "client_samples"):
        if getattr(settings.data, key) is not None:
            raise UserError(f"data_args.{key} does not apply to what data_args.loader returns; do it in the loader")
    return standardize_dataset(from_fedml(loaded), settings)


def from_source(source: Source, settings: RunSettings) -> TransductiveDataset:
    """The samples of a source, partitioned over clients."""
    data, batch_size = settings.data, settings.train.batch_size
    source, parts = partition_source(source, settings)
    encoder = load_run_encoder(settings, input_kind(source))
    samples, labels = to_samples(source.x_train, source.tokens), torch.from_numpy(source.y_train)
    server = load_server_set(source, data, tuple(samples.shape[1:]))
    inputs, server_inputs = encode_samples(encoder, samples), encode_samples(encoder, server.inputs)
    preprocessing = fit_preprocessing(source, parts, settings, encoder, lambda: inputs, lambda: server_inputs)
    standardize = preprocessing.standardizer or torch.nn.Identity()
    inputs = standardize(inputs)
    augments = source.augments and data.augmentation == "auto" and encoder is None
    shards = {k: TensorShard(inputs, labels, indices, batch_size, augments) for k, indices in enumerate(parts)}
    train_global = TensorShard(inputs, labels, np.sort(np.concatenate(parts)), batch_size, augments)
    evaluator = None
    if server.labels is not None:
        evaluator = SealedEvaluator(torch.from_numpy(server.labels), source.class_names)
    dataset = TransductiveDataset(
        train_num=train_global.samples,
        train_global=train_global,
        train_local_num_dict={client: shard.samples for client, shard in shards.items()},
        train_local_dict=shards,
        test_local_dict=dict(shards),
        server_inputs=standardize(server_inputs),
        evaluator=evaluator,
        ids=server.ids,
        class_names=source.class_names,
        batch_size=batch_size,
        preprocessing=preprocessing,
    )
    if data.partition_method == "user" and source.users is not None:
        dataset.client_names = list(source.users.names)
    return dataset


def standardize_dataset(dataset: TransductiveDataset, settings: RunSettings) -> TransductiveDataset:
    """The clients and the server's set of a user's own dataset, standardized by the clients' samples."""
    reject_encoder(settings, "a dataset of eight entries")
    clients = dataset[5]
    if not isinstance(clients, Mapping) or not should_standardize(settings, dataset.server_inputs, "numbers"):
        return dataset
    with fork_rng(0, "scale of features"):
        client_inputs = (torch.as_tensor(x) for _, client in sorted(clients.items()) for x, _ in client or ())
        standardizer = Standardizer.fit([dataset.server_inputs] if settings.privacy.is_active else client_inputs)
    test_local = dataset[6]
    return TransductiveDataset(
        train_num=dataset[0],
        train_global=standardize_entry(dataset[2], standardizer),
        train_local_num_dict=dataset[4],
        train_local_dict={client: standardize_entry(entry, standardizer) for client, entry in clients.items()},
        test_local_dict={client: standardize_entry(entry, standardizer) for client, entry in test_local.items()}
        if isinstance(test_local, Mapping)
        else test_local,
        server_inputs=standardizer(dataset.server_inputs),
        evaluator=dataset.evaluator,
        ids=dataset.ids,
        class_names=dataset.class_names,
        batch_size=dataset[3].batch_size,
        preprocessing=Preprocessing("numbers", standardizer),
    )


def partition_source(source: Source, settings: RunSettings) -> tuple[Source, list[npt.NDArray[np.int64]]]:
    """The samples that take part, and each client's rows of them; every party computes the same."""
    data = settings.data
    seed = settings.common.random_seed if data.partition_seed is None else data.partition_seed
    source = select_users(subsample_clients(source, data), data, seed)
    if data.partition_method == "user" and source.users is not None:
        parts = partition_by_user(source.users.train, len(source.users.names))
    else:
        parts = partition_samples(source.y_train, settings.train.client_num_in_total, source.class_num, data, seed)
    warn_about_single_samples({client: len(rows) for client, rows in enumerate(parts)})
    return source, parts


def call_loader(name: str, settings: RunSettings) -> Any:
    """The return value of the function `package.module:function`.

    It is called with one argument that has the run's keys as attributes (`args.batch_size`, `args.data_cache_dir`,
    `args.client_num_in_total`, ...), as in FedML; or without arguments if it takes none.
    """
    function: Callable[..., Any] = import_object(name, "data_args.loader")
    if not callable(function):
        raise UserError(f"data_args.loader {name!r} is a {type(function).__name__}; name a function")
    args = SimpleNamespace(**{key: value for keys in settings.to_config().values() for key, value in keys.items()})
    try:
        returned = function(args) if _takes_argument(function) else function()
    except UserError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(
            f"data_args.loader {name} failed with {type(error).__name__}: {first_line(error)} ({place.filename}, line "
            f"{place.lineno}); correct the function"
        ) from error
    # FedML's loaders return the tuple of eight and the number of classes.
    if isinstance(returned, tuple | list) and len(returned) == 2 and isinstance(returned[0], tuple | list):
        returned = returned[0]
    if not isinstance(returned, Source) and not (isinstance(returned, tuple | list) and len(returned) == 8):
        raise UserError(
            f"data_args.loader {name} returned a {type(returned).__name__}; return FedML's tuple of eight entries, a "
            "mrtf_fedml.data.Source or a TransductiveDataset"
        )
    return returned


def _takes_argument(function: Callable[..., Any]) -> bool:
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        # Functions written in C may have no signature.
        return True
    return any(parameter.kind in positional for parameter in parameters)


def _validate_source(source: Source) -> Source:
    """A source that a user constructed, with the checks of `make_source`."""
    fields = {field.name: getattr(source, field.name) for field in dataclasses.fields(source)}
    name = str(fields.pop("name"))
    for key in ("x_train", "y_train", "x_test", "y_test"):
        if fields[key] is not None:
            try:
                fields[key] = np.asarray(fields[key])
            # A list of rows of different lengths, a tensor on a GPU, a column of another library's table.
            except Exception as error:
                raise UserError(
                    f"the data of {name}: {key} is not an array ({first_line(error)}); pass an array"
                ) from error
    return make_source(name, f"the data of {name}", **fields)


def from_fedml(dataset: Any) -> TransductiveDataset:
    """A FedML dataset of eight entries, with `test_global` as the server's set and its labels sealed.

    The clients' entries stay as they are, with one exception: a local test set that is the server's set itself,
    which several of FedML's loaders give to every client, is replaced by the client's own training data.
    """
    if isinstance(dataset, TransductiveDataset):
        return dataset
    if not isinstance(dataset, tuple | list) or len(dataset) != 8:
        raise UserError("the dataset is not FedML's tuple of eight entries; pass what fedml.data.load returns")
    train_num, _, train_global, test_global, local_nums, train_local, test_local, classes = dataset
    if not isinstance(classes, int | np.integer) or isinstance(classes, bool) or classes < 2:
        raise UserError(
            f"the dataset's class_num (its last entry) is {classes!r}; pass the number of classes, at least 2"
        )
    if isinstance(local_nums, Mapping):
        empty = [client for client, number in local_nums.items() if number == 0]
        if empty:
            raise UserError(f"client {format_list(empty)} of the dataset has no training samples; remove it")
        warn_about_single_samples(local_nums)
    server = read_test_global(test_global)
    class_names = [str(index) for index in range(int(classes))]
    return TransductiveDataset(
        train_num=train_num,
        train_global=train_global,
        train_local_num_dict=local_nums,
        train_local_dict=train_local,
        test_local_dict=_without_server_set(test_local, train_local, test_global),
        server_inputs=server.inputs,
        evaluator=None if server.labels is None else SealedEvaluator(server.labels, class_names),
        ids=[str(index) for index in range(len(server.inputs))],
        class_names=class_names,
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
