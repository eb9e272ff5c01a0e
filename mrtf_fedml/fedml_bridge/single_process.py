"""FedML's single-process simulation, with the pair that was asked for really called.

FedML's own ignores `client_trainer` and `server_aggregator`, averages inside itself, seeds its choice of clients with
the round's number alone, and tests every client there is. What it does well is kept: its clients, their data, its
device.
"""

from __future__ import annotations

from typing import Any

import torch
from fedml.core import ClientTrainer
from fedml.simulation.sp.fedavg import FedAvgAPI
from torch import nn

from .client_seat import ClientSeat
from .messages import Payload
from .server_side import AlgorithmAggregator
from .session import Session


class SingleProcess(FedAvgAPI):
    """All clients, one after another, and the server, in one process."""

    def __init__(
        self,
        args: Any,
        device: torch.device,
        dataset: Any,
        model: nn.Module,
        client_trainer: ClientTrainer,
        server_aggregator: AlgorithmAggregator,
    ) -> None:
        self.client_trainer = client_trainer
        self.aggregator = server_aggregator
        self.session = Session(args, device, dataset, server_aggregator)
        super().__init__(args, device, list(self.session.dataset), model)

    def _setup_clients(self, numbers: Any, train_data: Any, test_data: Any, model_trainer: Any) -> None:
        self.seat = ClientSeat(self.session.dataset, self.device, self.args, self.client_trainer)

    def run(self) -> None:
        """All rounds."""
        self.session.run(self._train_clients)

    train = run

    def _train_clients(self, round_index: int, clients: list[int]) -> list[tuple[int, Payload]]:
        aggregator = self.aggregator
        return [
            self.seat.train_client(client, {**aggregator.get_model_params(), **aggregator.extra_for(client)})
            for client in clients
        ]
