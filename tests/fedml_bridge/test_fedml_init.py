"""Without tracking there is no network request; with tracking FedML may make its own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fedml
import pytest
from fedml.core.mlops import MLOpsConfigs, MLOpsStore

import mrtf_fedml
from mrtf_fedml.cli import main
from mrtf_fedml.fedml_bridge.fedml_init import (
    _without_false_lines,
    block_platform_calls,
    offline,
    restore_platform_calls,
    uses_platform,
)
from tests.conftest import small_config, write_yaml
from tests.fedml_bridge.fedml_project import fedml_arguments


@pytest.fixture(autouse=True)
def _unregistered() -> Iterator[None]:
    """A run that an earlier test made in this process has registered us."""
    mrtf_fedml.unregister()
    yield
    mrtf_fedml.unregister()


def test_run_without_tracking_opens_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def refuse(*address: Any, **_: Any) -> Any:
        calls.append(address)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    config = small_config(run_dir=str(tmp_path / "run"), comm_round=1)
    assert main(["run", "--cf", str(write_yaml(tmp_path / "c.yaml", config))]) == 0
    assert calls == []


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({}, False),
        ({"enable_tracking": False, "using_mlops": False}, False),
        ({"enable_tracking": True}, True),
        ({"using_mlops": "true"}, True),
    ],
)
def test_uses_platform_reads_both_tracking_switches(keys: dict[str, Any], wanted: bool) -> None:
    args = SimpleNamespace(**keys)
    assert uses_platform(args) is wanted
    online = MLOpsConfigs.fetch_all_configs
    with offline(args):
        assert (MLOpsConfigs.fetch_all_configs is online) is wanted
    assert MLOpsConfigs.fetch_all_configs is online


def test_offline_restores_fedml_calls_after_an_error() -> None:
    online = MLOpsConfigs.fetch_all_configs
    with pytest.raises(RuntimeError), offline(SimpleNamespace()):
        raise RuntimeError
    assert MLOpsConfigs.fetch_all_configs is online


def test_fedml_init_after_register_makes_no_platform_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fedml.init()` as a project calls it, with FedML's report on the environment, for a run across silos."""
    calls: list[Any] = []

    def refuse(*address: Any, **_: Any) -> Any:
        calls.append(address)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    config = small_config(training_type="cross_silo", backend="GRPC")
    args = fedml_arguments(write_yaml(tmp_path / "c.yaml", config))
    args.worker_num = 3
    online = MLOpsConfigs.fetch_all_configs
    mrtf_fedml.register()
    try:
        fedml.init(args, should_init_logs=False)
        assert calls == []
    finally:
        mrtf_fedml.unregister()
    assert MLOpsConfigs.fetch_all_configs is online


def test_tracked_run_calls_the_platform_registered_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(MLOpsConfigs, "fetch_all_configs", staticmethod(lambda: calls.append(True)))
    monkeypatch.setattr(MLOpsStore, "mlops_args", SimpleNamespace(enable_tracking=True))
    block_platform_calls()
    try:
        MLOpsConfigs.fetch_all_configs()
    finally:
        restore_platform_calls()
    assert calls == [True]


def test_report_on_the_machine_has_no_false_lines(capsys: pytest.CaptureFixture[str]) -> None:
    def collect() -> None:
        print("CUDA is not available")
        print("MPI4py is NOT installed")
        print("you can not connect to mqtt.fedml.ai")

    _without_false_lines(collect)()
    assert capsys.readouterr().out == "CUDA is not available\n"


def test_warning_in_a_fedml_project_has_its_level() -> None:
    code = "import logging, mrtf_fedml; mrtf_fedml.register(); logging.getLogger('mrtf_fedml.a').warning('careful')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "WARNING: careful" in result.stderr.splitlines()
