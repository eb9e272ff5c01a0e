"""Tracking of whole runs: what Weights & Biases and FedML's platform receive; nothing if it is disabled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from fedml import mlops
from fedml.core import mlops as core_mlops
from fedml.core.mlops.mlops_profiler_event import MLOpsProfilerEvent
from fedml.runner import FedMLRunner
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore

import mrtf_fedml
from mrtf_fedml.cli import main
from tests.conftest import read_metrics, small_config, write_yaml
from tests.fedml_bridge.test_plugin import project

OFF: dict[str, Any] = {"enable_wandb": False, "enable_tracking": False, "using_mlops": False}


@pytest.fixture(autouse=True)
def _untracked_afterwards() -> Iterator[None]:
    """FedML keeps Weights & Biases enabled for the rest of the process."""
    yield
    mrtf_fedml.unregister()
    wandb.finish()
    MLOpsProfilerEvent._enable_wandb = False


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The real wandb, in its offline mode, which writes to a folder what it would send; where that folder is."""
    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true", "CONSOLE": "off"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    return tmp_path / "wandb"


def run(folder: Path, tracking: dict[str, Any], **changes: Any) -> Path:
    """A finished run's folder, by `mrtf run`."""
    config = small_config(run_dir=str(folder / "run"), model="mlp", **changes)
    config["tracking_args"] = tracking
    assert main(["run", "--cf", str(write_yaml(folder / "config.yaml", config))]) == 0
    return folder / "run"


def records(folder: Path) -> list[Any]:
    """All that wandb has written down of the one run in this folder."""
    (file,) = folder.glob("offline-run-*/run-*.wandb")
    directory = DataStore()
    directory.open_for_scan(str(file))
    found = []
    while (data := directory.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        found.append(record)
    return found


def numbers(line: dict[str, Any]) -> dict[str, float]:
    """What can be drawn of a line of metrics: no lists, no words, nothing that was not measured."""
    return {key: value for key, value in line.items() if isinstance(value, int | float)}


def test_wandb_receives_the_metrics_of_every_round(tmp_path: Path, offline: Path) -> None:
    tracking = {"enable_wandb": True, "wandb_project": "labels", "run_name": "mine"}
    run_dir = run(tmp_path, tracking, comm_round=3, frequency_of_the_test=2)
    wandb.finish()
    written = records(offline)
    (about,) = [record.run for record in written if record.WhichOneof("record_type") == "run"]
    assert (about.project, about.display_name) == ("labels", "mine")
    rounds = [record.history for record in written if record.WhichOneof("record_type") == "history"]
    logged = [{item.key: json.loads(item.value_json) for item in entry.item} for entry in rounds]
    # wandb adds a few of its own, which begin with an underscore.
    entries = [{key: value for key, value in entry.items() if not key.startswith("_")} for entry in logged]
    lines = read_metrics(run_dir)
    assert entries == [numbers(line) for line in lines]
    assert [entry["_step"] for entry in logged] == [entry["round"] for entry in entries] == [0, 1, 2]
    assert "acc" not in entries[1], "no score of a round that was not tested"
    assert "clients" not in entries[0], "no list"
    assert entries[2]["acc"] == json.loads((run_dir / "summary.json").read_text())["accuracy"]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Calls to the trackers by name; they are recorded and not made."""
    recorded: list[tuple[str, Any]] = []

    def record(name: str) -> Any:
        return lambda *given, **_: recorded.append((name, given))

    for name in ("init", "log"):
        monkeypatch.setattr(wandb, name, record(f"wandb.{name}"))
    for name in ("log", "log_round_info", "log_metric"):
        # FedML exports the same function from two modules.
        for module in (mlops, core_mlops):
            monkeypatch.setattr(module, name, record(f"mlops.{name}"))
    return recorded


@pytest.mark.parametrize("tracking", [{}, OFF], ids=["not named", "switched off"])
def test_run_without_tracking_sends_nothing(
    tmp_path: Path, calls: list[tuple[str, Any]], offline: Path, tracking: dict[str, Any]
) -> None:
    assert len(read_metrics(run(tmp_path, tracking, comm_round=1))) == 1
    assert calls == []
    assert not offline.exists()


@pytest.mark.parametrize("key", ["enable_tracking", "using_mlops"])
def test_fedml_platform_receives_metrics_and_round_info(tmp_path: Path, calls: list[tuple[str, Any]], key: str) -> None:
    """There is no platform in tests: calls to FedML's client of it are recorded and not made.

    The key is set after `fedml.init`, which would wait for the platform.
    """
    args, device, dataset, model = project(tmp_path, comm_round=2)
    setattr(args, key, True)
    mrtf_fedml.register()
    FedMLRunner(args, device, dataset, model).run()
    lines = read_metrics(tmp_path / "run")
    expected: list[tuple[str, Any]] = []
    for line in lines:
        expected += [("mlops.log", (numbers(line),)), ("mlops.log_round_info", (2, line["round"]))]
    assert calls == expected
