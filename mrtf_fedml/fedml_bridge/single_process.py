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
from fedml.simulation.sp.fedavg.client import Client
from torch import nn

from ..sampling import chosen_clients
from .server_side import AlgorithmAggregator
from .session import Session


class _HookedClient(Client):
    """FedML's client, with the hooks before and after training that FedML's cross-silo client calls."""

    def train(self, w_global: Any) -> Any:
        trainer = self.model_trainer
        trainer.set_model_params(w_global)
        trainer.update_dataset(self.local_training_data, self.local_test_data, self.local_sample_number)
        trainer.on_before_local_training(trainer.local_train_dataset, self.device, self.args)
        trainer.train(trainer.local_train_dataset, self.device, self.args)
        trainer.on_after_local_training(trainer.local_train_dataset, self.device, self.args)
        return trainer.get_model_params()


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
        # One client serves all in turn: the parent's one a seat would hold the first clients' data for no use.
        self.client = _HookedClient(
            0, train_data[0], test_data[0], numbers[0], self.args, self.device, self.client_trainer
        )

    def run(self) -> None:
        """All rounds; what was finished is written down also when the user stops it."""
        try:
            self.train()
        except KeyboardInterrupt:
            self.session.finish(interrupted=True)
            raise
        self.session.finish()

    def train(self) -> None:
        """The rounds, with the hooks in the order in which FedML's cross-silo server calls them."""
        train, seed = self.aggregator.settings.train, self.aggregator.settings.common.random_seed
        for round_index in range(self.aggregator.state.round, train.comm_round):
            self.args.round_idx = round_index
            clients = chosen_clients(round_index, train.client_num_in_total, train.client_num_per_round, seed)
            self.aggregator.begin_round(clients)
            messages = [self._train_client(client) for client in clients]
            entries, _ = self.aggregator.on_before_aggregation(messages)
            aggregated = self.aggregator.aggregate(entries)
            self.aggregator.set_model_params(self.aggregator.on_after_aggregation(aggregated))

    def _train_client(self, index: int) -> tuple[int, Any]:
        self.client.update_local_dataset(
            index,
            self.train_data_local_dict[index],
            self.test_data_local_dict[index],
            self.train_data_local_num_dict[index],
        )
        message = self.client.train({**self.aggregator.get_model_params(), **self.aggregator.extra_for(index)})
        return self.client.get_sample_number(), message
