"""`data_args.holdout`: a fraction of each client's labelled samples replaces the server's unlabelled set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..config import RunSettings
from ..errors import UserError
from ..rng import fork_rng, numpy_generator
from .dataset import TransductiveDataset
from .evaluator import SealedEvaluator
from .shards import TensorShard


def apply_holdout(dataset: TransductiveDataset, settings: RunSettings) -> TransductiveDataset:
    """The dataset with held-out samples of the clients as the server's set, their labels in the evaluator.

    Every client holds out the fraction `data_args.holdout` of its samples, drawn with the seed of the partition. A
    client with one sample keeps it. The server's own inputs remain available as `real_inputs`, for comparison only.
    """
    fraction, clients = settings.data.holdout, dataset[5]
    if fraction is None:
        return dataset
    if settings.common.training_type != "simulation":
        reject_holdout(settings)
    if not isinstance(clients, Mapping) or not clients:
        raise UserError("data_args.holdout needs the clients' samples, but this dataset has none; leave it out")
    seed = settings.common.random_seed if settings.data.partition_seed is None else settings.data.partition_seed
    kept, held_inputs, held_labels, ids = {}, [], [], []
    for client in sorted(clients):
        shard = _as_shard(clients[client], client, settings.train.batch_size)
        rows = _holdout_rows(shard.samples, fraction, numpy_generator(seed, "rehearsal", client))
        mask = np.zeros(shard.samples, dtype=bool)
        mask[rows] = True
        is_held = torch.from_numpy(mask)
        kept[client] = shard.part((~is_held).nonzero().flatten())
        held_inputs.append(shard.inputs[shard.indices[is_held]])
        held_labels.append(shard.labels[is_held])
        ids += [f"client {client}, sample {row}" for row in np.flatnonzero(mask)]
    if not ids:
        raise UserError(f"data_args.holdout is {fraction:g}, which is less than one sample of every client; raise it")
    # The order of the server's set must reveal neither the client of a sample nor its class.
    order = numpy_generator(seed, "rehearsal").permutation(len(ids))
    result = TransductiveDataset(
        train_num=sum(shard.samples for shard in kept.values()),
        train_global=_remaining_samples(dataset[2], kept),
        train_local_num_dict={client: shard.samples for client, shard in kept.items()},
        train_local_dict=kept,
        test_local_dict=dict(kept),
        server_inputs=torch.cat(held_inputs)[order],
        evaluator=SealedEvaluator(torch.cat(held_labels)[order], dataset.class_names),
        ids=[ids[index] for index in order],
        class_names=dataset.class_names,
        batch_size=settings.train.batch_size,
        preprocessing=dataset.preprocessing,
    )
    result.real_inputs = dataset.server_inputs
    return result


def reject_holdout(settings: RunSettings) -> None:
    """Raise: where the parties are separate, none of them may collect the samples of the others."""
    raise UserError(
        "data_args.holdout puts samples of all clients together, but they may not leave their parties where "
        f"training_type is {settings.common.training_type}; use training_type: simulation, on data that one machine "
        "may hold"
    )


def _holdout_rows(samples: int, fraction: float, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    return generator.permutation(samples)[: min(round(fraction * samples), samples - 1)]


def _as_shard(entry: Any, client: int, batch_size: int) -> TensorShard:
    """A client's samples; a user's own loader is read once, in its own order."""
    if isinstance(entry, TensorShard):
        return entry
    with fork_rng(0, "rehearsal", client):
        batches = [(torch.as_tensor(x), torch.as_tensor(y)) for x, y in entry or ()]
    labels = torch.cat([y for _, y in batches]) if batches else torch.zeros(0)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or len(labels) == 0:
        raise UserError(
            f"data_args.holdout needs one label per sample, but the labels of client {client} have shape "
            f"{tuple(labels.shape)}; leave it out"
        )
    inputs = torch.cat([x for x, _ in batches])
    return TensorShard(inputs, labels.long(), np.arange(len(labels)), batch_size)


def _remaining_samples(train_global: Any, shards: Mapping[int, TensorShard]) -> TensorShard | None:
    """The samples of all clients that are not held out, if they share one tensor; else None."""
    if not isinstance(train_global, TensorShard) or any(s.inputs is not train_global.inputs for s in shards.values()):
        return None
    remaining = torch.cat([shard.indices for shard in shards.values()])
    return train_global.part(torch.isin(train_global.indices, remaining).nonzero().flatten())
