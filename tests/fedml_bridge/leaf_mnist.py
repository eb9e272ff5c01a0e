"""A FedML project that somebody else wrote: FedML's own loader, model and entry points, and files that it would read.

Its loader wants MNIST as LEAF cuts it up by writers. The files here have that form and hold scikit-learn's digits, so
that nothing has to be fetched.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from tests.conftest import write_yaml

WRITERS = 3
SERVER_SAMPLES = 60


def write_project(folder: Path, federated_optimizer: str, **comm_args: Any) -> Path:
    """The project's fedml_config.yaml, with its data in the same folder."""
    _write_data(folder / "data")
    config: dict[str, dict[str, Any]] = {
        "common_args": {"training_type": "simulation", "random_seed": 0},
        "data_args": {"dataset": "mnist", "data_cache_dir": str(folder / "data"), "partition_method": "hetero"},
        "model_args": {"model": "lr"},
        "train_args": {
            "federated_optimizer": federated_optimizer,
            "client_id_list": "[]",
            "client_num_in_total": WRITERS,
            "client_num_per_round": 2,
            "comm_round": 2,
            "epochs": 1,
            "batch_size": 16,
            "client_optimizer": "sgd",
            "learning_rate": 0.03,
            "weight_decay": 0.001,
        },
        "validation_args": {"frequency_of_the_test": 1},
        "device_args": {"using_gpu": False, "gpu_id": 0},
        "comm_args": {"backend": "sp", **comm_args},
        "tracking_args": {"enable_tracking": False, "enable_wandb": False},
    }
    if comm_args:
        config["common_args"]["training_type"] = "cross_silo"
    return write_yaml(folder / "fedml_config.yaml", config)


def _write_data(folder: Path) -> None:
    digits = load_digits()
    images = np.kron(digits.images / 16.0, np.ones((1, 3, 3)))
    pixels = np.pad(images, ((0, 0), (2, 2), (2, 2))).reshape(len(images), 784).round(4)
    writers = [f"writer{index}" for index in range(WRITERS)]
    per_writer = SERVER_SAMPLES // WRITERS
    for part, first in (("train", SERVER_SAMPLES), ("test", 0)):
        size = 100 if part == "train" else per_writer
        rows = {name: slice(first + index * size, first + (index + 1) * size) for index, name in enumerate(writers)}
        content = {
            "users": writers,
            "num_samples": [size] * WRITERS,
            "user_data": {
                name: {"x": pixels[row].tolist(), "y": digits.target[row].tolist()} for name, row in rows.items()
            },
        }
        (folder / "MNIST" / part).mkdir(parents=True, exist_ok=True)
        (folder / "MNIST" / part / "all_data.json").write_text(json.dumps(content))
    # FedML fetches the archive unless it is there; it does not open one that it has unpacked.
    (folder / "MNIST.zip").touch()


def run_simulation(words: list[str]) -> int:
    """The project's program: two lines are ours."""
    import sys

    import fedml

    import mrtf_fedml

    mrtf_fedml.register()
    sys.argv = ["main.py", *words]
    fedml.run_simulation()
    return 0


def run_server(words: list[str]) -> int:
    """The same across silos: its server."""
    import sys

    import fedml

    import mrtf_fedml

    mrtf_fedml.register()
    sys.argv = ["server.py", *words, "--rank", "0", "--role", "server"]
    fedml.run_cross_silo_server()
    return 0


def run_client(words: list[str]) -> int:
    """The same across silos: a silo."""
    import sys

    import fedml

    import mrtf_fedml

    mrtf_fedml.register()
    sys.argv = ["client.py", *words, "--role", "client"]
    fedml.run_cross_silo_client()
    return 0
