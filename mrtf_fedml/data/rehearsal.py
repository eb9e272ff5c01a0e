"""A rehearsal: a share of each client's labelled samples stands in for the server's set, which has no labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..errors import UserError
from ..randomness import forked, numpy_generator
from ..settings import RunSettings
from .dataset import TransductiveDataset
from .examiner import Examiner
from .shards import TensorShard


def rehearsed(dataset: TransductiveDataset, settings: RunSettings) -> TransductiveDataset:
    """The same clients without what they hold out, and a server's set of that; its labels are sealed in the examiner.

    Every client holds out the share `data_args.rehearse` of its samples, drawn by the seed of the split; a client of
    one sample keeps it. The server's own inputs stay beside it, as `real_inputs`, to be compared with and nothing else.
    """
    share, clients = settings.data.rehearse, dataset[5]
    if share is None:
        return dataset
    if settings.common.training_type != "simulation":
        refuse_rehearsal(settings)
    if not isinstance(clients, Mapping) or not clients:
        raise UserError("data_args.rehearse holds out samples of the clients, but none is here; leave it out")
    seed = settings.common.random_seed if settings.data.partition_seed is None else settings.data.partition_seed
    kept, held, truth, ids = {}, [], [], []
    for client in sorted(clients):
        shard = _as_shard(clients[client], client, settings.train.batch_size)
        rows = _held_out(shard.samples, share, numpy_generator(seed, "rehearsal", client))
        mask = np.zeros(shard.samples, dtype=bool)
        mask[rows] = True
        out = torch.from_numpy(mask)
        kept[client] = shard.part((~out).nonzero().flatten())
        held.append(shard.inputs[shard.indices[out]])
        truth.append(shard.labels[out])
        ids += [f"client {client}, sample {row}" for row in np.flatnonzero(mask)]
    if not ids:
        raise UserError(f"data_args.rehearse is {share:g}, of which no client has a whole sample; raise it")
    # The order of a server's set must not tell whose a sample is, nor its class.
    order = numpy_generator(seed, "rehearsal").permutation(len(ids))
    mock = TransductiveDataset(
        train_num=sum(shard.samples for shard in kept.values()),
        train_global=_together(dataset[2], kept),
        train_local_num_dict={client: shard.samples for client, shard in kept.items()},
        train_local_dict=kept,
        test_local_dict=dict(kept),
        server_inputs=torch.cat(held)[order],
        examiner=Examiner(torch.cat(truth)[order], dataset.class_names),
        ids=[ids[place] for place in order],
        class_names=dataset.class_names,
        batch_size=settings.train.batch_size,
        preprocessing=dataset.preprocessing,
    )
    mock.real_inputs = dataset.server_inputs
    return mock


def refuse_rehearsal(settings: RunSettings) -> None:
    """Where the parties are separate there is nobody who may hold all that they hold out."""
    raise UserError(
        f"a rehearsal puts samples of all clients together, which may not leave their parties where training_type is "
        f"{settings.common.training_type}; rehearse in a simulation (training_type: simulation), on data that one "
        "machine may hold"
    )


def _held_out(samples: int, share: float, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    return generator.permutation(samples)[: min(round(share * samples), samples - 1)]


def _as_shard(entry: Any, client: int, batch_size: int) -> TensorShard:
    """A client's samples; those of a loader of the user's own are read once, in the order that it gives."""
    if isinstance(entry, TensorShard):
        return entry
    with forked(0, "rehearsal", client):
        batches = [(torch.as_tensor(x), torch.as_tensor(y)) for x, y in entry or ()]
    labels = torch.cat([y for _, y in batches]) if batches else torch.zeros(0)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or len(labels) == 0:
        raise UserError(
            f"data_args.rehearse needs one label per sample, but client {client}'s have shape {tuple(labels.shape)}; "
            "leave it out"
        )
    inputs = torch.cat([x for x, _ in batches])
    return TensorShard(inputs, labels.long(), np.arange(len(labels)), batch_size)


def _together(everything: Any, shards: Mapping[int, TensorShard]) -> TensorShard | None:
    """What is left of all clients' samples, where they are one shard."""
    if not isinstance(everything, TensorShard) or any(s.inputs is not everything.inputs for s in shards.values()):
        return None
    left = torch.cat([shard.indices for shard in shards.values()])
    return everything.part(torch.isin(everything.indices, left).nonzero().flatten())
