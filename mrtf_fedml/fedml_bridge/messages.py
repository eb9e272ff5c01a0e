"""What travels between server and clients: made and read here alone.

FedML's messages have room for weights and a sample count only. Whatever else is told travels among the weights under a
reserved key, which is taken out before FedML's hooks: they treat every entry as a weight.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import torch
from torch import Tensor

from ..algorithms import ClientUpdate
from ..algorithms.exchange import Weights, as_tensors
from ..data.preprocessing import Scale

RESERVED = "__mrtf__."
LOSS = RESERVED + "loss"
#: Where the algorithm counts other samples than the shard has.
SAMPLES = RESERVED + "samples"
#: What an algorithm sends beside the weights, entry by entry, either way.
EXTRA = RESERVED + "extra."
#: The scale to which silos with files of their own bring their features.
MEAN, DEVIATION = RESERVED + "mean", RESERVED + "deviation"

#: The tensors of a message.
Payload = Mapping[str, Tensor]


def start_payload(weights: Weights, extra: Weights) -> OrderedDict[str, Tensor]:
    """What a client receives: theta_t, and what the algorithm has for it alone. No tensor is copied.

    >>> payload = start_payload({"w": torch.ones(1)}, {"w": torch.zeros(1)})
    >>> list(weights_of(payload)), list(extra_of(payload))
    (['w'], ['w'])
    """
    return OrderedDict([*weights.items(), *((EXTRA + key, value) for key, value in extra.items())])


def scale_payload(scale: Scale | None) -> dict[str, Tensor]:
    """What tells a silo the server's scale of features; nothing where there is none.

    >>> scale = scale_of(scale_payload(Scale(torch.ones(2), torch.ones(2))))
    >>> scale is not None and scale.mean.tolist()
    [1.0, 1.0]
    """
    return {} if scale is None else {MEAN: scale.mean, DEVIATION: scale.deviation}


def scale_of(payload: Payload) -> Scale | None:
    """The scale that a payload tells, if any."""
    return Scale(payload[MEAN], payload[DEVIATION]) if MEAN in payload else None


def update_payload(update: ClientUpdate, samples: int | None = None) -> OrderedDict[str, Tensor]:
    """What a client sends back; `samples` is what FedML's message says beside it.

    >>> payload = update_payload(ClientUpdate(3, 10, {"w": torch.ones(1)}, loss=0.5, extra={"drift": 2}))
    >>> list(weights_of(payload)), update_of(3, 10, payload).loss, update_of(3, 10, payload).extra["drift"].item()
    (['w'], 0.5, 2.0)
    """
    payload = start_payload(update.weights, as_tensors(update.extra))
    if update.loss is not None:
        payload[LOSS] = torch.tensor(update.loss, dtype=torch.float64)
    if samples is not None and update.samples != samples:
        payload[SAMPLES] = torch.tensor(update.samples)
    return payload


def update_of(client: int, samples: float, payload: Payload) -> ClientUpdate:
    """The update that a client's payload stands for; the payload stays as it is."""
    loss = float(payload[LOSS]) if LOSS in payload else None
    counted = int(payload.get(SAMPLES, samples))
    return ClientUpdate(client, counted, weights_of(payload), loss, extra_of(payload))


def weights_of(payload: Payload) -> OrderedDict[str, Tensor]:
    """The payload's weights alone, in a dict of its own."""
    return OrderedDict((key, value) for key, value in payload.items() if not key.startswith(RESERVED))


def extra_of(payload: Payload) -> dict[str, Tensor]:
    """What goes beside the weights."""
    return {key[len(EXTRA) :]: value for key, value in payload.items() if key.startswith(EXTRA)}
