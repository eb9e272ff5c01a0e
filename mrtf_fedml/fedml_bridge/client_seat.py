"""How a client trains, through FedML's hooks; and the seat that the clients of a simulation take in turn."""

from __future__ import annotations

from typing import Any

import torch
from fedml.core import ClientTrainer
from fedml.simulation.sp.fedavg.client import Client

from ..data import TransductiveDataset
from ..randomness import forked
from .messages import Payload


class ClientSeat(Client):
    """FedML's client, with the hooks before and after training that FedML's cross-silo client calls.

    One seat serves all clients of a process in turn: one a client would hold their data for no use.
    """

    def __init__(self, dataset: TransductiveDataset, device: torch.device, args: Any, trainer: ClientTrainer) -> None:
        _, _, _, _, self.sample_numbers, self.training_data, self.test_data, _ = dataset
        super().__init__(-1, None, None, 0, args, device, trainer)

    def train_client(self, index: int, weights: Payload) -> tuple[int, Payload]:
        """The client's sample count and its message, in the round `args.round_idx`."""
        self.update_local_dataset(index, self.training_data[index], self.test_data[index], self.sample_numbers[index])
        return self.get_sample_number(), self.train(weights)

    def train(self, w_global: Payload) -> Payload:
        """From these weights to the client's message, through FedML's hooks."""
        trainer = self.model_trainer
        trainer.update_dataset(self.local_training_data, self.local_test_data, self.local_sample_number)
        return through_hooks(trainer, w_global, self.device, self.args)


def through_hooks(trainer: ClientTrainer, weights: Payload, device: torch.device, args: Any) -> Payload:
    """A client's message, after the hooks in FedML's order, in the round `args.round_idx`."""
    seed, client, round_index = int(getattr(args, "random_seed", 0)), int(trainer.id), int(args.round_idx)
    # What a user's trainer or FedML's hooks draw from the global state is the client's own, in whichever process.
    with forked(seed, "client", client, round_index):
        trainer.set_model_params(weights)
        trainer.on_before_local_training(trainer.local_train_dataset, device, args)
        trainer.train(trainer.local_train_dataset, device, args)
        trainer.on_after_local_training(trainer.local_train_dataset, device, args)
        return trainer.get_model_params()
