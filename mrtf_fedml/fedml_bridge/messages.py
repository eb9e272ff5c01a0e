"""What a client's message holds beside its weights.

FedML's messages have room for weights and a sample count only. Whatever else a client tells travels among the weights
under a reserved key, which the server takes out before FedML's hooks: they treat every entry as a weight.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import torch
from torch import Tensor

from ..algorithms.contract import ClientUpdate

RESERVED = "__mrtf__."
LOSS = RESERVED + "loss"
#: What an algorithm sends beside the weights, entry by entry: to a client, and the client's variate back.
EXTRA = RESERVED + "extra."

Payload = Mapping[str, Tensor]


def weights_of(message: Payload) -> OrderedDict[str, Tensor]:
    """The message's weights alone, in a dict of its own."""
    return OrderedDict((key, value) for key, value in message.items() if not key.startswith(RESERVED))


def with_extra(weights: Payload, extra: Payload) -> OrderedDict[str, Tensor]:
    """A message that also carries tensors which are no weights.

    >>> message = with_extra({"w": torch.ones(1)}, {"w": torch.zeros(1)})
    >>> list(weights_of(message)), list(extra_of(message))
    (['w'], ['w'])
    """
    return OrderedDict([*weights.items(), *((EXTRA + key, value) for key, value in extra.items())])


def extra_of(message: Payload) -> dict[str, Tensor]:
    """What `with_extra` added."""
    return {key[len(EXTRA) :]: value for key, value in message.items() if key.startswith(EXTRA)}


def with_loss(weights: OrderedDict[str, Tensor], loss: float) -> OrderedDict[str, Tensor]:
    """A message that also tells the mean local loss.

    >>> list(weights_of(with_loss(OrderedDict(w=torch.ones(1)), 0.5)))
    ['w']
    """
    return OrderedDict([*weights.items(), (LOSS, torch.tensor(loss, dtype=torch.float64))])


def read_message(client: int, samples: float, message: Payload) -> ClientUpdate:
    """The update that a client's message stands for; the message stays as it is."""
    loss = float(message[LOSS]) if LOSS in message else None
    return ClientUpdate(client, int(samples), weights_of(message), loss, extra_of(message) or None)
