"""Silos behind an address translation, over a slow link, and over one that loses everything for 20 s in each phase."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.cli import main
from tests.backends.cross_silo.certificates import Authority
from tests.backends.cross_silo.federation import wait_until
from tests.backends.two_hosts.nat import HOSPITAL, SERVER, Nat, missing_tools, nat
from tests.backends.two_hosts.test_two_hosts import SECONDS, ended, one_process
from tests.conftest import output_bytes, read_metrics, small_config, write_yaml

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]

CUT_SECONDS = 20.0
PORT = 8890
SILOS = {"client_num_in_total": 2, "client_num_per_round": 2, "classes_per_client": 5}
#: About 600 kB: at 1 Mbit/s the models of two silos take ten seconds.
LARGE = {"model": "mlp", "hidden_size": 300}


@pytest.fixture
def network() -> Iterator[Nat]:
    with nat() as made:
        yield made


@contextmanager
def federation(network: Nat, folder: Path, **changes: Any) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A server and two silos behind the address translation, with certificates."""
    authority, processes = Authority(folder / "certificates"), []
    certificates = [authority.party("server", SERVER), authority.party("silo1"), authority.party("silo2")]
    for rank, files in enumerate(certificates):
        config = small_config(
            training_type="cross_silo",
            backend="GRPC",
            run_dir=str(folder / "run"),
            server_address=f"{SERVER}:{PORT}",
            silo_timeout=300.0,
            start_timeout=SECONDS,
            min_clients=2,
            **(SILOS | changes | files),
        )
        file = write_yaml(folder / f"{rank}.yaml", config)
        words = ["mrtf", "run", "--cf", str(file), "--rank", str(rank)]
        processes.append(network.start("hospital" if rank else "server", *words, log=folder / f"{rank}.log"))
    try:
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_for_all(processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    for rank, process in enumerate(processes):
        ended(process, folder / f"{rank}.log")


def lines_of(party: str, folder: Path, **fields: Any) -> int:
    """How many lines of a party's audit log have these fields."""
    file = folder / party / "audit.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return sum(all(line.get(key) == value for key, value in fields.items()) for line in map(json.loads, lines))


def test_silos_behind_address_translation_give_equal_predictions(tmp_path: Path, network: Nat) -> None:
    with federation(network, tmp_path, comm_round=3) as processes:
        wait_until(lambda: network.reaches("hospital", SERVER, PORT), "the server listens", SECONDS)
        assert not network.reaches("server", HOSPITAL, PORT), "nobody reaches the hospital"
        wait_for_all(processes, tmp_path)
    assert output_bytes(tmp_path / "run") == output_bytes(one_process(tmp_path, **SILOS, comm_round=3))
    for rank in (1, 2):
        assert main(["audit", "verify", str(tmp_path / "run"), str(tmp_path / f"run-silo{rank}")]) == 0


def test_link_of_1_mbit_gives_equal_predictions(tmp_path: Path, network: Nat) -> None:
    network.limit_rate("1mbit")
    with federation(network, tmp_path, comm_round=2, **LARGE) as processes:
        wait_for_all(processes, tmp_path)
    assert [line["excluded_clients"] for line in read_metrics(tmp_path / "run")] == [{}, {}]
    assert output_bytes(tmp_path / "run") == output_bytes(one_process(tmp_path, **SILOS, **LARGE, comm_round=2))


def test_link_that_is_lost_for_20_s_in_each_phase_gives_equal_predictions(tmp_path: Path, network: Nat) -> None:
    """The phases: connecting, a task under way, training, an update under way, refining. The last round is undisturbed:
    a server that has ended cannot tell a silo so."""
    network.limit_rate("1mbit")
    changes = LARGE | {"comm_round": 6, "epochs": 10, "refine_steps": 300}
    server, silo = "run", "run-silo1"

    def has_updates() -> bool:
        return lines_of(server, tmp_path, kind="update", direction="received", round=4) == 2

    phases: list[tuple[str, Callable[[], Any], float]] = [
        ("a task is under way", lambda: lines_of(server, tmp_path, kind="task", direction="sent", round=1), 2.0),
        ("a silo trains", lambda: lines_of(silo, tmp_path, kind="task", direction="received", round=2), 0.0),
        ("an update is under way", lambda: lines_of(silo, tmp_path, kind="update", direction="sent", round=3), 2.0),
        (
            "the server refines",
            lambda: lines_of(server, tmp_path, kind="update", direction="received", round=4) == 2,
            0.0,
        ),
    ]
    network.cut()
    with federation(network, tmp_path, **changes) as processes:
        wait_until(lambda: "waits for the server" in (tmp_path / "1.log").read_text(), "a silo connects", SECONDS)
        time.sleep(CUT_SECONDS)
        network.mend()
        for phase, has_begun, seconds in phases:
            wait_until(has_begun, phase, SECONDS)
            time.sleep(seconds)
            network.cut()
            time.sleep(CUT_SECONDS)
            network.mend()
        wait_for_all(processes, tmp_path)
    assert [line["excluded_clients"] for line in read_metrics(tmp_path / "run")] == [{}] * 6
    assert output_bytes(tmp_path / "run") == output_bytes(one_process(tmp_path, **SILOS, **changes))
