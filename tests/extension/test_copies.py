"""Number of copies of a model during a client's training in one process."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mrtf_fedml
from mrtf_fedml import ClientTask, ClientUpdate
from mrtf_fedml.algorithms import algorithm_by_name
from mrtf_fedml.fedml_bridge.messages import pack_task, unpack_update
from mrtf_fedml.training.round import RoundTasks
from tests.conftest import small_config, write_yaml
from tests.fedml_bridge.fedml_project import fedml_arguments

SIZE = 512


class Wide(nn.Module):
    """One matrix, which nothing else is as large as."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Linear(SIZE, SIZE, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.matrix(x)


def matrices() -> set[int]:
    """The storages of the model's size that are alive, whoever holds them; a gradient is no copy of a model."""
    gc.collect()
    # By type: reading __class__ of a lazy proxy may load its object.
    tensors = [found for found in gc.get_objects() if issubclass(type(found), Tensor)]
    gradients = {tensor.grad.data_ptr() for tensor in tensors if tensor.is_leaf and tensor.grad is not None}
    # `p.data` and views are other tensors in the same storage.
    return {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel() == SIZE * SIZE} - gradients


class Counted(mrtf_fedml.LocalTerm):
    """Looks around at every step, before it is made."""

    peak = 0

    def correct_gradients(self, model: nn.Module) -> None:
        Counted.peak = max(Counted.peak, len(matrices()))


class Counting(mrtf_fedml.Algorithm):
    """FedAvg that counts during local training, and once more when its update exists."""

    name = "Counting"

    def local_term(self, task: ClientTask) -> mrtf_fedml.LocalTerm:
        return Counted()

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        update = super().train_client(model, task)
        Counted.peak = max(Counted.peak, len(matrices()))
        return update


@pytest.fixture
def seat(tmp_path: Path) -> Any:
    """A server and a seat for its clients in one process, as `mrtf run` puts them together."""
    from mrtf_fedml.fedml_bridge.adapters import SimulatedClient, make_adapters

    # Momentum would be the optimiser's state, a matrix more that is no copy of the model.
    config = small_config(federated_optimizer="tests.extension.test_copies:Counting", momentum=0.0, epochs=2)
    args = fedml_arguments(write_yaml(tmp_path / "config.yaml", config))
    trainer_class, aggregator_class = make_adapters(algorithm_by_name("tests.extension.test_copies:Counting"))
    model = Wide()
    shards = {client: [(torch.randn(4, SIZE), torch.arange(4))] for client in range(3)}
    dataset = (12, 4, None, None, dict.fromkeys(shards, 4), shards, dict.fromkeys(shards), SIZE)
    aggregator = aggregator_class(model, args)
    return aggregator.server, SimulatedClient(dataset, torch.device("cpu"), args, trainer_class(model, args))


def test_client_turn_needs_three_copies_of_the_model(seat: Any) -> None:
    """Three: the model that trains, theta_t, which is the server's own, and what is sent. Earlier clients' updates wait
    for the average, one each, and are not this turn's."""
    server, clients = seat
    handout = RoundTasks(server.algorithm, server.state, [0, 1, 2])
    updates = []
    for client in handout.clients:
        Counted.peak = 0
        before = len(updates)
        sent = clients.run(client, pack_task(handout.weights, handout.payload(client)), 0)
        updates.append(unpack_update(client, 4, sent))
        del sent
        assert Counted.peak - before <= 3, f"client {client}"
        assert len(matrices()) - before <= 3, f"after client {client}"
    # Otherwise the count would see nothing.
    assert Counted.peak == 3 + 2
    sent = {update.weights["matrix.weight"].untyped_storage().data_ptr() for update in updates}
    assert len(sent) == 3, "each update has memory of its own"
