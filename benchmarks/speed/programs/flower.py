"""The shape in Flower: its simulation, whose clients are processes of Ray; all their CPU seconds count."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import flwr
import numpy as np
import psutil
import torch
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from torch import nn

_held: dict[str, Any] = {}


def held(shape_file: str, data_file: str) -> dict[str, Any]:
    """The data and the net of this process, read once."""
    if not _held:
        with open(shape_file) as file:
            _held.update(json.load(file))
        data = np.load(data_file)
        _held.update({name: torch.from_numpy(data[name]) for name in data.files})
        _held["net"] = net_of(_held["shape"], _held["classes"])
    return _held


def net_of(shape: list[int], classes: int) -> nn.Module:
    """Logistic regression for vectors; a small convolutional net for images."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if len(shape) == 1:
        return nn.Linear(shape[0], classes)
    return nn.Sequential(
        nn.Conv2d(shape[0], 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (shape[1] // 4) * (shape[2] // 4), classes),
    )


def put(net: nn.Module, arrays: list[np.ndarray]) -> None:
    """The arrays into the net."""
    net.load_state_dict({key: torch.tensor(array) for key, array in zip(net.state_dict(), arrays, strict=True)})


class Client(NumPyClient):
    """One epoch of plain SGD."""

    def __init__(self, files: tuple[str, str], client: int) -> None:
        self.files, self.client = files, client

    def fit(self, parameters: list[np.ndarray], config: Any) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        """Flower's hook."""
        shape = held(*self.files)
        net, each, batch = shape["net"], shape["samples_per_client"], shape["batch_size"]
        put(net, parameters)
        optimizer = torch.optim.SGD(net.parameters(), lr=shape["learning_rate"])
        for start in range(self.client * each, (self.client + 1) * each, batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(
                net(shape["x"][start : start + batch]), shape["y"][start : start + batch]
            ).backward()
            optimizer.step()
        return [value.numpy() for value in net.state_dict().values()], each, {}


def spent() -> float:
    """CPU seconds of this process and of all below it, so far."""
    own = psutil.Process()
    total = 0.0
    for process in [own, *own.children(recursive=True)]:
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


class Clocked(FedAvg):
    """Flower's FedAvg; the first round, in which Ray's processes load PyTorch, is not counted."""

    began = 0.0
    ended = 0.0
    last = 0

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        """Flower's hook."""
        if server_round == 2:
            self.began = spent()
        return super().configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        """Flower's hook."""
        assert not failures, failures
        done = super().aggregate_fit(server_round, results, failures)
        if server_round == self.last:
            self.ended = spent()
        return done


def main(shape_file: str, data_file: str) -> None:
    """Run it and print one line of JSON."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    files = (shape_file, data_file)
    shape = held(*files)
    net, accuracy = shape["net"], [0.0]

    def evaluate(server_round: int, arrays: list[np.ndarray], config: Any) -> Any:
        if server_round == 0 or server_round % shape["test_every"]:
            return None
        put(net, arrays)
        with torch.no_grad():
            accuracy[0] = float((net(shape["x_test"]).argmax(1) == shape["y_test"]).float().mean())
        return 0.0, {}

    strategy = Clocked(
        fraction_fit=shape["chosen"] / shape["clients"],
        min_fit_clients=shape["chosen"],
        min_available_clients=shape["clients"],
        fraction_evaluate=0.0,
        evaluate_fn=evaluate,
        initial_parameters=ndarrays_to_parameters([value.numpy() for value in net.state_dict().values()]),
    )
    # One round more: the first is not counted.
    strategy.last = shape["rounds"] + 1

    def client_of(context: Context) -> Any:
        return Client(files, int(context.node_config["partition-id"])).to_client()

    def server_of(context: Context) -> ServerAppComponents:
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=strategy.last))

    flwr.simulation.run_simulation(
        ServerApp(server_fn=server_of),
        ClientApp(client_fn=client_of),
        num_supernodes=shape["clients"],
        backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 1}},
    )
    result = {"version": version("flwr"), "seconds": strategy.ended - strategy.began, "accuracy": accuracy[0]}
    print(json.dumps(result))


if __name__ == "__main__":
    # By its name, which Ray's processes find too: what stands in `__main__` would travel to them with every message.
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    importlib.import_module(Path(__file__).stem).main(*sys.argv[1:])
