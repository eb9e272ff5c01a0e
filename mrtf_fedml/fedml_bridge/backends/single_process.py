"""A simulation in one process.

FedML's own ignores `client_trainer` and `server_aggregator`, averages inside itself, seeds its choice of clients with
the round's number alone, and tests every client.
"""

from __future__ import annotations

from typing import Any

import torch
from fedml.core import ClientTrainer

from ...algorithms import ClientUpdate
from ...training.round import Backend, RoundTasks
from ..adapters import AlgorithmAggregator, SimulatedClient
from ..messages import pack_task, unpack_update
from ..runner import RunOptions
from ..session import Session


class SingleProcess(Backend):
    """The server and all clients, one after another, in one process."""

    def __init__(
        self,
        args: Any,
        device: torch.device,
        dataset: Any,
        trainer: ClientTrainer,
        aggregator: AlgorithmAggregator,
        options: RunOptions | None = None,
    ) -> None:
        self.aggregator = aggregator
        self.session = Session(args, device, dataset, aggregator, options)
        self.client = SimulatedClient(self.session.dataset, device, args, trainer)
        self.run_dir = self.session.directory.path

    def run(self) -> None:
        """Run all rounds."""
        self.session.execute(self)

    def train_clients(self, tasks: RoundTasks) -> list[ClientUpdate]:
        """Train the clients one after another."""
        updates = []
        for client in tasks.clients:
            sent = self.client.run(client, pack_task(tasks.weights, tasks.payload(client)), tasks.round)
            updates.append(unpack_update(client, self.client.samples[client], sent))
        return updates
