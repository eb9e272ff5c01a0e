"""Silos behind an address translation, over a slow link, and over one that loses everything for 20 s in each phase."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mrtf_fedml.cli import main
from mrtf_fedml.config import RunSettings
from mrtf_fedml.data import load
from mrtf_fedml.training.run_directory import RunDirectory
from tests.backends.cross_silo.certificates import Authority
from tests.backends.cross_silo.federation import wait_until
from tests.backends.two_hosts.nat import HOSPITAL, HOSPITALS, ROUTER_INSIDE, SERVER, Nat, missing_tools, nat
from tests.backends.two_hosts.test_two_hosts import SECONDS, finish, one_process
from tests.conftest import output_bytes, read_metrics, small_config, small_settings, write_yaml

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]

PLACES = ("server", *HOSPITALS)
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
def federation(
    network: Nat, folder: Path, variables: dict[str, str] | None = None, **changes: Any
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A server and two silos, each behind its own address translation, with certificates."""
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
        environment = (variables or {}) if rank else {}
        processes.append(network.start(PLACES[rank], *words, log=folder / f"{rank}.log", **environment))
    try:
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_for_all(processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    for rank, process in enumerate(processes):
        finish(process, folder / f"{rank}.log")


def lines_of(party: str, folder: Path, **fields: Any) -> int:
    """How many lines of a party's audit log have these fields."""
    file = folder / party / "audit.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return sum(all(line.get(key) == value for key, value in fields.items()) for line in map(json.loads, lines))


def test_silos_behind_address_translation_give_equal_predictions(tmp_path: Path, network: Nat) -> None:
    with federation(network, tmp_path, comm_round=3) as processes:
        wait_until(lambda: network.reaches("north", SERVER, PORT), "the server listens", SECONDS)
        assert not network.reaches("server", HOSPITAL, PORT), "nobody reaches the hospital"
        wait_for_all(processes, tmp_path)
    assert output_bytes(tmp_path / "run") == output_bytes(one_process(tmp_path, **SILOS, comm_round=3))
    for rank in (1, 2):
        assert main(["audit", "verify", str(tmp_path / "run"), str(tmp_path / f"run-silo{rank}")]) == 0


def test_hospitals_that_reach_only_a_proxy_give_equal_predictions(tmp_path: Path, network: Nat) -> None:
    network.cut()
    words = [sys.executable, "-m", "tests.backends.cross_silo.proxy", ROUTER_INSIDE, "3128"]
    proxies = [
        network.start(f"router-{hospital}", *words, log=tmp_path / f"proxy-{hospital}.log") for hospital in HOSPITALS
    ]
    variables = {"https_proxy": f"http://{ROUTER_INSIDE}:3128", "no_proxy": ""}
    try:
        with federation(network, tmp_path, variables, comm_round=2) as processes:
            assert not network.reaches("north", SERVER, PORT)
            wait_for_all(processes, tmp_path)
    finally:
        for proxy in proxies:
            proxy.kill()
    assert output_bytes(tmp_path / "run") == output_bytes(one_process(tmp_path, **SILOS, comm_round=2))


def test_link_of_1_mbit_gives_equal_predictions(tmp_path: Path, network: Nat) -> None:
    network.limit_rate("1mbit")
    with federation(network, tmp_path, comm_round=2, **LARGE) as processes:
        wait_for_all(processes, tmp_path)
    assert [line["excluded_clients"] for line in read_metrics(tmp_path / "run")] == [{}, {}]
    assert output_bytes(tmp_path / "run") == output_bytes(one_process(tmp_path, **SILOS, **LARGE, comm_round=2))


def test_link_that_is_lost_for_20_s_in_each_phase_gives_equal_predictions(tmp_path: Path, network: Nat) -> None:
    """The phases: connecting, a task under way, training, an update under way, refining, the end of the run."""
    network.limit_rate("1mbit")
    rounds = 6
    changes = LARGE | {"comm_round": rounds, "epochs": 10, "refine_steps": 300}
    server, silo = "run", "run-silo1"

    def has_updates(round_index: int) -> bool:
        return lines_of(server, tmp_path, kind="update", direction="received", round=round_index) == 2

    def has_ended() -> bool:
        file = tmp_path / "run" / "metrics.jsonl"
        return file.exists() and file.read_text().count("\n") == rounds

    # Each with the event that begins it, the seconds until the cut, and an event that happens while the link is cut.
    phases: list[tuple[str, Callable[[], Any], float, Callable[[], Any]]] = [
        ("a task is sent", lambda: lines_of(server, tmp_path, kind="task", direction="sent", round=1), 2.0, always),
        ("a silo trains", lambda: lines_of(silo, tmp_path, kind="task", direction="received", round=2), 0.0, always),
        ("an update is sent", lambda: lines_of(silo, tmp_path, kind="update", direction="sent", round=3), 2.0, always),
        ("the server refines", lambda: has_updates(4), 0.0, always),
        ("the run ends", lambda: has_updates(5), 0.0, has_ended),
    ]
    network.cut()
    with federation(network, tmp_path, **changes) as processes:
        wait_until(lambda: "waits for the server" in (tmp_path / "1.log").read_text(), "a silo connects", SECONDS)
        time.sleep(CUT_SECONDS)
        network.mend()
        for phase, has_begun, seconds, is_over in phases:
            wait_until(has_begun, phase, SECONDS)
            time.sleep(seconds)
            network.cut()
            wait_until(is_over, f"{phase} without a link", SECONDS)
            time.sleep(CUT_SECONDS)
            network.mend()
        wait_for_all(processes, tmp_path)
    assert [line["excluded_clients"] for line in read_metrics(tmp_path / "run")] == [{}] * rounds
    assert output_bytes(tmp_path / "run") == output_bytes(one_process(tmp_path, **SILOS, **changes))


def always() -> bool:
    return True


def write_own_files(folder: Path, settings: RunSettings) -> list[Path]:
    """The samples of a simulation, one file per party."""
    whole = load(settings)
    names = np.array(whole.class_names)
    files = [folder / f"data{rank}.npz" for rank in range(3)]
    np.savez(files[0], x_test=whole.server_inputs.numpy(), class_names=names)
    for client, file in enumerate(files[1:]):
        shard = whole[5][client]
        np.savez(file, x_train=shard.inputs[shard.indices].numpy(), y_train=shard.labels.numpy(), class_names=names)
    return files


def test_invited_hospitals_go_from_invitation_to_finished_run(tmp_path: Path, network: Nat) -> None:
    """As new users: invite, hand over the folders, put the samples there, preflight, run, verify the logs."""
    began = time.monotonic()
    changes = SILOS | {"comm_round": 3, "preset": "tuned"}
    config = small_config(own_data_file="data.npz", **changes)
    config["comm_args"] |= {"start_timeout": SECONDS}
    shared = write_yaml(tmp_path / "shared.yaml", config)
    invite = ["mrtf", "invite", "--cf", str(shared), "--server", f"{SERVER}:{PORT}", *HOSPITALS]
    finish(network.start("server", *invite, log=tmp_path / "invite.log", folder=tmp_path), tmp_path / "invite.log")
    print(f"invited after {time.monotonic() - began:.0f} s")
    # The operator's folder has relative paths from where `mrtf invite` ran.
    files = write_own_files(tmp_path, small_settings(**changes))
    folders = {"server": tmp_path / "federation" / "server"}
    files[0].rename(tmp_path / "data.npz")
    for hospital, file in zip(HOSPITALS, files[1:], strict=True):
        folders[hospital] = Path(shutil.move(tmp_path / "federation" / hospital, tmp_path / f"at {hospital}"))
        file.rename(folders[hospital] / "data.npz")
    roles = {"server": ["--role", "server"]}
    roles |= {name: ["--role", "client", "--rank", str(rank)] for rank, name in enumerate(HOSPITALS, start=1)}

    def preflight(*places: str) -> None:
        checks = {
            place: network.start(
                place,
                *["mrtf", "preflight", "--cf", "config.yaml", *roles[place]],
                log=tmp_path / f"preflight-{place}.log",
                folder=folders[place],
            )
            for place in places
        }
        for place, process in checks.items():
            finish(process, tmp_path / f"preflight-{place}.log")

    preflight("server")
    start = {
        place: partial(network.start, place, "bash", "start.sh", log=tmp_path / f"{place}.log", folder=folder)
        for place, folder in folders.items()
    }
    processes = {"server": start["server"]()}
    try:
        wait_until(lambda: network.reaches("north", SERVER, PORT), "the server listens", SECONDS)
        preflight(*HOSPITALS)
        print(f"checked after {time.monotonic() - began:.0f} s")
        processes |= {hospital: start[hospital]() for hospital in HOSPITALS}
        for place, process in processes.items():
            finish(process, tmp_path / f"{place}.log")
    finally:
        for process in processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    print(f"finished after {time.monotonic() - began:.0f} s")
    run_dir = folders["server"] / "run"
    alone = one_process(tmp_path, **changes)
    assert (run_dir / "predictions.csv").read_bytes() == (alone / "predictions.csv").read_bytes()
    weights, expected = (RunDirectory(folder).read_model()[0] for folder in (run_dir, alone))
    assert all(torch.equal(tensor, expected[key]) for key, tensor in weights.items())
    for rank, hospital in enumerate(HOSPITALS, start=1):
        assert main(["audit", "verify", str(run_dir), str(folders[hospital] / f"run-silo{rank}")]) == 0
