"""Whole federations on this machine: real processes, real sockets, and all of it gone at the end of a test.

Importing FedML takes ten seconds a process. So the processes are forked from one that has imported it and done nothing
else: a server of forks, which multiprocessing keeps for the whole session.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import small_config, write_yaml

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["mrtf_fedml.commands.run", "mrtf_fedml.fedml_bridge.launcher", "grpc"])

#: Nothing here takes as long on an idle machine; a loaded one may.
PATIENCE = 300.0


def free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def grpc_table(path: Path, ports: list[int]) -> Path:
    lines = ["eid,rank,grpc_server_ip,grpc_server_port"]
    lines += [f"{rank},{rank},127.0.0.1,{port}" for rank, port in enumerate(ports)]
    path.write_text("\n".join(lines) + "\n")
    return path


def wait_until(true: Callable[[], Any], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what}"
        time.sleep(0.05)


class Party:
    """One process, and what it has written."""

    def __init__(self, run: Callable[[list[str]], int], words: list[str], log: Path) -> None:
        self.log = log
        log.touch()
        self.process = FORKS.Process(target=_party, args=(run, words, str(log), os.getcwd()))
        self.process.start()

    @property
    def told(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def ended(self, seconds: float = PATIENCE) -> int:
        """Its exit code, which must come in time."""
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"still running after {seconds:g} s:\n{self.told}"
        return self.process.exitcode


class Federation:
    """A server and its silos, from one configuration."""

    def __init__(self, folder: Path, silos: int = 3, backend: str = "GRPC", **changes: Any) -> None:
        self.folder = folder
        self.silos = silos
        self.run_dir = folder / "run"
        self.parties: list[Party] = []
        changes = {"client_num_in_total": silos, "client_num_per_round": silos, "classes_per_client": 5} | changes
        self.config = small_config(run_dir=str(self.run_dir), training_type="cross_silo", backend=backend, **changes)
        self.comm = self.config["comm_args"]
        self.comm.setdefault("silo_timeout", 60.0)
        self.comm.setdefault("start_timeout", PATIENCE)
        if backend == "GRPC":
            self.ports = free_ports(silos + 1)
            self.comm["grpc_ipconfig_path"] = str(grpc_table(folder / "grpc.csv", self.ports))
        if backend == "TRPC":
            table = folder / "trpc.csv"
            table.write_text(f"master_ip,master_port\n127.0.0.1,{free_ports(1)[0]}\n")
            self.comm["trpc_master_config_path"] = str(table)

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *_: Any) -> None:
        for party in self.parties:
            if party.process.is_alive():
                party.process.kill()
            party.process.join(10)

    def start(self, rank: int, *words: str, config: dict[str, Any] | None = None) -> Party:
        """`mrtf run --rank RANK` in a process of its own."""
        file = write_yaml(self.folder / f"{rank}-{len(self.parties)}.yaml", config or self.config)
        return self._add(rank, ["run", "--cf", str(file), "--rank", str(rank), *words])

    def resume(self) -> Party:
        """`mrtf run --resume` of the server."""
        return self._add(0, ["run", "--resume", str(self.run_dir), "--rank", "0"])

    def _add(self, rank: int, words: list[str]) -> Party:
        party = Party(_command_line, words, self.folder / f"{rank}-{len(self.parties)}.log")
        self.parties.append(party)
        return party

    def start_all(self) -> list[Party]:
        return [self.start(rank) for rank in range(self.silos + 1)]

    def rounds_done(self) -> int:
        metrics = self.run_dir / "metrics.jsonl"
        return metrics.read_text().count("\n") if metrics.exists() else 0


def _party(run: Callable[[list[str]], int], words: list[str], log: str, folder: str) -> None:
    os.chdir(folder)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # A process group of its own: a Ctrl-C at the tests is not one at the federation.
    os.setsid()
    sys.exit(run(words))


def _command_line(words: list[str]) -> int:
    from mrtf_fedml.cli import main

    return main(words)
