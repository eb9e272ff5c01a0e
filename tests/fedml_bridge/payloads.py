"""Payloads as clients send them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from torch import Tensor

from mrtf_fedml.algorithms import ClientUpdate
from mrtf_fedml.fedml_bridge.messages import pack_update


def with_loss(weights: Mapping[str, Tensor], loss: float) -> OrderedDict[str, Tensor]:
    """Weights, and the mean local loss."""
    return pack_update(ClientUpdate(0, 1, weights, loss))
