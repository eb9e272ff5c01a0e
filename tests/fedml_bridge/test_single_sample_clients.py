"""Clients that own a single sample, and models that cannot take the statistics of one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import nn

from mrtf_fedml.cli import main
from tests.conftest import read_metrics, small_config, write_yaml


class WithBatchNorm(nn.Sequential):
    """Normalises one value per channel, which PyTorch refuses for a single sample."""

    def __init__(self, features: int = 5, classes: int = 3) -> None:
        super().__init__(nn.Linear(features, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))


def test_client_with_one_sample_trains_models_with_batch_norm(tmp_path: Path) -> None:
    """On every algorithm, to the end, with a server that owns one sample too."""
    generator = np.random.default_rng(0)
    users = np.array(["lonely", *["many"] * 9, *["some"] * 5])
    file = tmp_path / "users.npz"
    np.savez(
        file,
        x_train=generator.normal(size=(15, 5)).astype(np.float32),
        y_train=np.arange(15) % 3,
        u_train=users,
        x_test=generator.normal(size=(1, 5)).astype(np.float32),
    )
    for name in ("MrTF", "FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold"):
        run_dir = tmp_path / name
        config = small_config(
            run_dir=str(run_dir),
            federated_optimizer=name,
            dataset="npz",
            data_file=str(file),
            partition_method="user",
            model="tests.fedml_bridge.test_single_sample_clients:WithBatchNorm",
            client_num_per_round=3,
            batch_size=4,
        )
        assert main(["run", "--cf", str(write_yaml(tmp_path / f"{name}.yaml", config))]) == 0
        assert [line["excluded_clients"] for line in read_metrics(run_dir)] == [{}, {}]
        assert (run_dir / "predictions.csv").read_text().count("\n") == 2
