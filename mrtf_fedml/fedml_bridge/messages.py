"""The tensors of a message between server and clients: packed and unpacked here alone.

FedML's messages have room for weights and a sample count only. Everything else travels among the weights under a
reserved prefix, and is removed before FedML's hooks, which treat every entry as a weight.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import torch
from torch import Tensor

from ..algorithms import ClientUpdate
from ..algorithms.types import Weights, as_tensors
from ..data.preprocessing import Standardizer

RESERVED = "__mrtf__."
LOSS = RESERVED + "loss"
#: The sample count, where the algorithm counts other samples than the shard has.
SAMPLES = RESERVED + "samples"
#: The prefix of the algorithm's payload, in both directions.
PAYLOAD = RESERVED + "extra."
#: The feature scale for silos that read their own files.
MEAN, DEVIATION = RESERVED + "mean", RESERVED + "deviation"

#: The tensors of a message, by name.
MessageTensors = Mapping[str, Tensor]


def pack_task(weights: Weights, payload: Weights) -> OrderedDict[str, Tensor]:
    """What a client receives: theta_t, and the algorithm's payload for this client. No tensor is copied.

    >>> tensors = pack_task({"w": torch.ones(1)}, {"w": torch.zeros(1)})
    >>> list(weights_of(tensors)), list(payload_of(tensors))
    (['w'], ['w'])
    """
    return OrderedDict([*weights.items(), *((PAYLOAD + key, value) for key, value in payload.items())])


def pack_scale(scale: Standardizer | None) -> dict[str, Tensor]:
    """The server's feature scale for a silo; empty where there is none.

    >>> scale = unpack_scale(pack_scale(Standardizer(torch.ones(2), torch.ones(2))))
    >>> scale is not None and scale.mean.tolist()
    [1.0, 1.0]
    """
    return {} if scale is None else {MEAN: scale.mean, DEVIATION: scale.deviation}


def unpack_scale(tensors: MessageTensors) -> Standardizer | None:
    """The feature scale in a message, if any."""
    return Standardizer(tensors[MEAN], tensors[DEVIATION]) if MEAN in tensors else None


def pack_update(update: ClientUpdate, samples: int | None = None) -> OrderedDict[str, Tensor]:
    """What a client sends; `samples` is the count that FedML's message carries anyway.

    >>> tensors = pack_update(ClientUpdate(3, 10, {"w": torch.ones(1)}, loss=0.5, payload={"drift": 2}))
    >>> update = unpack_update(3, 10, tensors)
    >>> list(weights_of(tensors)), update.loss, update.payload["drift"].item()
    (['w'], 0.5, 2.0)
    """
    tensors = pack_task(update.weights, as_tensors(update.payload))
    if update.loss is not None:
        tensors[LOSS] = torch.tensor(update.loss, dtype=torch.float64)
    if samples is not None and update.samples != samples:
        tensors[SAMPLES] = torch.tensor(update.samples)
    return tensors


def unpack_update(client: int, samples: float, tensors: MessageTensors) -> ClientUpdate:
    """The update in a client's message; the message is not changed."""
    loss = float(tensors[LOSS]) if LOSS in tensors else None
    count = int(tensors.get(SAMPLES, samples))
    return ClientUpdate(client, count, weights_of(tensors), loss, payload_of(tensors))


def weights_of(tensors: MessageTensors) -> OrderedDict[str, Tensor]:
    """The weights in a message, in a new dict."""
    return OrderedDict((key, value) for key, value in tensors.items() if not key.startswith(RESERVED))


def payload_of(tensors: MessageTensors) -> dict[str, Tensor]:
    """The algorithm's payload in a message."""
    return {key[len(PAYLOAD) :]: value for key, value in tensors.items() if key.startswith(PAYLOAD)}
