"""FedML's single-process simulation, with the pair that was asked for really called.

FedML's own ignores `client_trainer` and `server_aggregator`, averages inside itself, seeds its choice of clients with
the round's number alone, and tests every client there is.
"""

from __future__ import annotations

from typing import Any

import torch
from fedml.core import ClientTrainer

from ..algorithms import ClientUpdate
from ..rounds.round import Handout
from .client_turn import ClientSeat
from .messages import start_payload
from .server_side import AlgorithmAggregator
from .session import Session


class SingleProcess:
    """All clients, one after another, and the server, in one process."""

    def __init__(
        self,
        args: Any,
        device: torch.device,
        dataset: Any,
        client_trainer: ClientTrainer,
        server_aggregator: AlgorithmAggregator,
    ) -> None:
        self.aggregator = server_aggregator
        self.session = Session(args, device, dataset, server_aggregator)
        self.seat = ClientSeat(self.session.dataset, device, args, client_trainer)

    def run(self) -> None:
        """All rounds."""
        self.session.play(self._ask)

    def _ask(self, handout: Handout) -> list[ClientUpdate]:
        return [
            self.seat.update(client, start_payload(handout.weights, handout.extra(client)), handout.round)
            for client in handout.clients
        ]
