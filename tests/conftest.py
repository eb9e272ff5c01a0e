"""Shared fixtures and helpers: small configurations, and isolation from the user's home directory."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.config import RunSettings


@pytest.fixture(autouse=True)
def _enable_interrupts() -> None:
    """Background jobs of a script ignore SIGINT, and so would every process that a test starts and interrupts.

    Set for each test, whatever handler the tests before it have left.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _private_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use an empty home directory, since FedML reads settings from ~/.fedml and writes there.

    OMP_NUM_THREADS would take precedence over the threads of the tests' configurations.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(autouse=True)
def _reset_log() -> None:
    """Configure our log as in a new process.

    A run by the command line sets its level, its propagation and a handler, which keeps the stderr of that one test.
    `fedml.init` replaces `logging.root`, the logger to which pytest adds its handlers, and sets the level of the root.
    """
    logging.root = logging.Logger.root
    logging.disable(logging.NOTSET)
    logging.getLogger().setLevel(logging.WARNING)
    for name in ["mrtf_fedml", *logging.root.manager.loggerDict]:
        if name.partition(".")[0] == "mrtf_fedml":
            log = logging.getLogger(name)
            log.handlers.clear()
            log.propagate, log.disabled = True, False
            log.setLevel(logging.NOTSET)


#: Folders whose tests start processes.
PROCESS_FOLDERS = ("backends", "examples", "commands", "extension", "fedml_bridge", "report")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the folders with the longest tests first, so that parallel workers end at the same time."""
    here = Path(__file__).parent
    first = {here / name: order for order, name in enumerate(PROCESS_FOLDERS)}

    def order(item: pytest.Item) -> int:
        return min((first[folder] for folder in item.path.parents if folder in first), default=len(first))

    items.sort(key=order)


#: Nothing is learnt, so that the run stops long before its last round.
STALLED: dict[str, Any] = {
    "preset": "tuned",
    "model": "mlp",
    "early_stopping": 1,
    "comm_round": 30,
    "learning_rate": 1e-9,
    "refine_steps": 1,
}


def small_config(**changes: Any) -> dict[str, dict[str, Any]]:
    """A configuration of a short run on the embedded digits; `changes` are keys of any section."""
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
    """`small_config` as validated settings."""
    return RunSettings.from_config(small_config(**changes))


def output_bytes(run_dir: Path) -> tuple[bytes, bytes]:
    """The bytes of a run's predictions and model."""
    return (run_dir / "predictions.csv").read_bytes(), (run_dir / "model.safetensors").read_bytes()


def read_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """The metrics of a run, one dict per round."""
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def write_yaml(path: Path, config: dict[str, Any]) -> Path:
    """Write a configuration to a YAML file; returns its path."""
    import yaml

    path.write_text(yaml.safe_dump(config))
    return path


def _sections() -> dict[str, list[str]]:
    import mrtf_fedml.algorithms  # noqa: F401  declares the algorithms' sections
    from mrtf_fedml.config import section_keys

    return section_keys()
