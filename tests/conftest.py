"""What several rooms' tests share: small settings, and FedML kept away from the user's home and threads."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.settings import RunSettings


@pytest.fixture(autouse=True, scope="session")
def _heard_interrupts() -> Iterator[None]:
    """Jobs in the background of a script ignore Ctrl-C; so would every process that a test starts, and interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="session")
def _private_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """FedML writes to ~/.fedml, and settings there override the environment.

    A set OMP_NUM_THREADS would win over the threads that the tests' configurations ask for.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(autouse=True)
def _log_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run by the command line keeps our log to itself, for the rest of the process."""
    monkeypatch.setattr(logging.getLogger("mrtf_fedml"), "propagate", True)


def small_config(**changes: Any) -> dict[str, dict[str, Any]]:
    """A run of seconds on the embedded digits; `changes` are keys of any section."""
    config: dict[str, dict[str, Any]] = {
        "common_args": {"training_type": "simulation", "random_seed": 3, "keep_features": False},
        "data_args": {"dataset": "digits", "partition_method": "label", "classes_per_client": 3},
        "model_args": {"model": "lenet"},
        "train_args": {
            "federated_optimizer": "MrTF",
            "client_num_in_total": 8,
            "client_num_per_round": 3,
            "comm_round": 2,
            "epochs": 1,
            "batch_size": 32,
            "client_optimizer": "sgd",
            "learning_rate": 0.05,
            "weight_decay": 1e-5,
        },
        "device_args": {"using_gpu": False, "threads": 1},
        "comm_args": {"backend": "sp"},
        "mrtf_args": {"refine_steps": 8, "refine_batch_size": 32, "cluster_warmup": 1},
    }
    for key, value in changes.items():
        section = next(name for name, values in _sections().items() if key in values)
        config.setdefault(section, {})[key] = value
    return config


def small_settings(**changes: Any) -> RunSettings:
    """`small_config`, validated."""
    return RunSettings.from_config(small_config(**changes))


def answer(run_dir: Path) -> tuple[bytes, bytes]:
    """What a run answers, to the byte: its predictions and its model."""
    return (run_dir / "predictions.csv").read_bytes(), (run_dir / "model.safetensors").read_bytes()


def metrics(run_dir: Path) -> list[dict[str, Any]]:
    """A run's rounds, a line each."""
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def write_yaml(path: Path, config: dict[str, Any]) -> Path:
    """A configuration as the file that a user would write."""
    import yaml

    path.write_text(yaml.safe_dump(config))
    return path


def _sections() -> dict[str, list[str]]:
    import mrtf_fedml.algorithms  # noqa: F401  they declare their sections
    from mrtf_fedml.settings import section_keys

    return section_keys()
