"""`refine_on: teachers`: each rank predicts the server's set with the models that it trained.

The server then distils alone, from the same logits as without it. Every rank holds the server's inputs, which no real
client may: only a simulation does this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ....algorithms import ClientUpdate, ServerContext
from ...messages import RESERVED, MessageTensors, weights_of

_LOGITS = RESERVED + "logits"


class RankLogitsContext(ServerContext):
    """The server's context on rank 0, with the teachers' logits that the other ranks computed."""

    #: By client: what it sent, and its model's logits on the server's set, [M, C].
    predicted: Mapping[int, tuple[MessageTensors, Tensor]]

    def __init__(self, server: ServerContext, predicted: Mapping[int, tuple[MessageTensors, Tensor]]) -> None:
        super().__init__(
            server.model, server.inputs, server.extractor, server.classes, server.positions, server.precision
        )
        # The dataclass is frozen.
        vars(self).update(predicted=predicted)

    def known_logits(self, updates: Sequence[ClientUpdate]) -> Mapping[int, Tensor]:
        """The ranks' logits, for the teachers whose weights are still what the ranks sent.

        The server itself predicts with a model that FedML's attacks or defences have changed.
        """
        known: dict[int, Tensor] = {}
        for place, update in enumerate(updates):
            sent, logits = self.predicted.get(update.client, ({}, None))
            if logits is None:
                continue
            weights = weights_of(sent)
            if all(torch.equal(value.cpu(), weights[key]) for key, value in update.weights.items()):
                known[place] = logits.to(self.inputs.device)
        return known


def attach_logits(sent: MessageTensors, server: ServerContext) -> MessageTensors:
    """What the client sends, with its model's logits on the server's set."""
    return {**sent, _LOGITS: server.logits(weights_of(sent))}


def detach_logits(tensors: MessageTensors) -> tuple[dict[str, Tensor], Tensor | None]:
    """What the client sent, without the logits, and the logits where there are any."""
    sent = dict(tensors)
    logits = sent.pop(_LOGITS, None)
    return sent, logits
