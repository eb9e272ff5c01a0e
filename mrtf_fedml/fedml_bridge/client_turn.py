"""A client's turn: from what the server sent to what the client sends, through FedML's hooks, on every backend."""

from __future__ import annotations

from typing import Any

import torch
from fedml.core import ClientTrainer

from ..algorithms import ClientUpdate
from ..data import TransductiveDataset
from ..models.weights import clone
from ..randomness import forked
from .client_side import AlgorithmTrainer
from .messages import Payload, update_of


def take_turn(
    trainer: ClientTrainer,
    client: int,
    shard: tuple[Any, Any, int],
    payload: Payload,
    round_index: int,
    device: torch.device,
    args: Any,
) -> Payload:
    """The payload that the client sends back.

    Args:
        trainer: of this process; it serves all its clients in turn.
        client: k.
        shard: the client's training data, its test data, and its number of samples.
        payload: what the server sent.
        round_index: t.
        device: where it trains.
        args: FedML's; its hooks read the round from there.
    """
    args.round_idx = round_index
    trainer.set_id(client)
    trainer.update_dataset(*shard)
    # What a user's trainer or FedML's hooks draw from the global state is the client's own, in whichever process.
    with forked(int(getattr(args, "random_seed", 0)), "client", client, round_index):
        trainer.set_model_params(payload)
        trainer.on_before_local_training(trainer.local_train_dataset, device, args)
        trainer.train(trainer.local_train_dataset, device, args)
        trainer.on_after_local_training(trainer.local_train_dataset, device, args)
        sent: Payload = trainer.get_model_params()
    # FedML's own trainers hand out the model's tensors themselves, which the next client overwrites.
    return sent if isinstance(trainer, AlgorithmTrainer) else clone(sent)


class ClientSeat:
    """The seat that the clients of a simulation take in turn; one per client would hold their data for no use."""

    def __init__(self, dataset: TransductiveDataset, device: torch.device, args: Any, trainer: ClientTrainer) -> None:
        _, _, _, _, self.samples, self.training_data, self.test_data, _ = dataset
        self.device = device
        self.args = args
        self.trainer = trainer

    def turn(self, client: int, payload: Payload, round_index: int) -> Payload:
        """What the client sends back."""
        shard = (self.training_data[client], self.test_data[client], self.samples[client])
        return take_turn(self.trainer, client, shard, payload, round_index, self.device, self.args)

    def update(self, client: int, payload: Payload, round_index: int) -> ClientUpdate:
        """The same, read."""
        return update_of(client, self.samples[client], self.turn(client, payload, round_index))
