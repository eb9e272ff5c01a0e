"""With tracking off nothing is asked of the network; with it on, FedML is let through."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fedml
import pytest
from fedml.core.mlops import MLOpsConfigs, MLOpsStore

import mrtf_fedml
from mrtf_fedml.cli import main
from mrtf_fedml.fedml_bridge.offline import (
    go_online,
    offline,
    stay_offline,
    wants_platform,
)
from tests.conftest import small_config, write_yaml
from tests.fedml_bridge.fedml_project import fedml_arguments


@pytest.fixture(autouse=True)
def _unregistered() -> Iterator[None]:
    """A run that an earlier test made in this process has registered us."""
    mrtf_fedml.unregister()
    yield
    mrtf_fedml.unregister()


def test_a_whole_run_opens_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def refuse(*address: Any, **_: Any) -> Any:
        asked.append(address)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    config = small_config(run_dir=str(tmp_path / "run"), comm_round=1)
    assert main(["run", "--cf", str(write_yaml(tmp_path / "c.yaml", config))]) == 0
    assert asked == []


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({}, False),
        ({"enable_tracking": False, "using_mlops": False}, False),
        ({"enable_tracking": True}, True),
        ({"using_mlops": "true"}, True),
    ],
)
def test_the_platform_is_wanted_where_the_user_says_so(keys: dict[str, Any], wanted: bool) -> None:
    args = SimpleNamespace(**keys)
    assert wants_platform(args) is wanted
    online = MLOpsConfigs.fetch_all_configs
    with offline(args):
        assert (MLOpsConfigs.fetch_all_configs is online) is wanted
    assert MLOpsConfigs.fetch_all_configs is online


def test_fedml_is_given_back_even_after_an_error() -> None:
    online = MLOpsConfigs.fetch_all_configs
    with pytest.raises(RuntimeError), offline(SimpleNamespace()):
        raise RuntimeError
    assert MLOpsConfigs.fetch_all_configs is online


def test_while_we_are_registered_a_projects_own_init_stays_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fedml.init()` as a project calls it, with FedML's report on the environment, for a run across silos."""
    asked: list[Any] = []

    def refuse(*address: Any, **_: Any) -> Any:
        asked.append(address)
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
        assert asked == []
    finally:
        mrtf_fedml.unregister()
    assert MLOpsConfigs.fetch_all_configs is online


def test_registered_or_not_a_tracked_run_asks_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(MLOpsConfigs, "fetch_all_configs", staticmethod(lambda: asked.append(True)))
    monkeypatch.setattr(MLOpsStore, "mlops_args", SimpleNamespace(enable_tracking=True))
    stay_offline()
    try:
        MLOpsConfigs.fetch_all_configs()
    finally:
        go_online()
    assert asked == [True]
