"""Federations on this machine, with real processes and sockets, which end with the test.

Importing FedML takes ten seconds per process, so the processes are forked from a fork server that has imported it.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from tests.backends.cross_silo.certificates import Authority
from tests.conftest import small_config, write_yaml

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["mrtf_fedml.commands.run", "mrtf_fedml.fedml_bridge.participants", "grpc"])

#: Seconds; far more than needed on an idle machine.
PATIENCE = 300.0


#: Below the ports that Linux gives to outgoing connections.
_PORTS = range(20_000, 32_000)
#: Open files, one per port: their locks reserve the ports for this process until it ends.
_reserved: list[Any] = []


def free_ports(number: int) -> list[int]:
    """Ports that no other process uses and that no other test process on this machine will be given."""
    folder = Path(tempfile.gettempdir()) / f"mrtf-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    ports: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(ports) == number:
            break
        file = (folder / str(port)).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as one:
                one.bind(("127.0.0.1", port))
        except OSError:
            file.close()
            continue
        _reserved.append(file)
        ports.append(port)
    assert len(ports) == number, "no free port"
    return ports


def grpc_table(path: Path, ports: list[int]) -> Path:
    lines = ["eid,rank,grpc_server_ip,grpc_server_port"]
    lines += [f"{rank},{rank},127.0.0.1,{port}" for rank, port in enumerate(ports)]
    path.write_text("\n".join(lines) + "\n")
    return path


def wait_until(true: Callable[[], Any], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"after {seconds:g} s there is no: {what}"
        time.sleep(0.05)


class Party:
    """One process, and its output."""

    def __init__(self, run: Callable[[list[str]], int], words: list[str], log: Path) -> None:
        self.log = log
        log.touch()
        self.process = FORKS.Process(target=_party, args=(run, words, str(log), os.getcwd()))
        self.process.start()

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait for its exit code."""
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"still running after {seconds:g} s:\n{self.output}"
        return self.process.exitcode


class Federation:
    """A server and its silos, with one configuration."""

    def __init__(self, folder: Path, silos: int = 3, backend: str = "GRPC", **changes: Any) -> None:
        self.folder = folder
        self.silos = silos
        self.run_dir = folder / "run"
        self.parties: list[Party] = []
        #: The keys of comm_args that only the party of this rank has.
        self.certificates: dict[int, dict[str, str]] = {}
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

    def use_certificates(self, authority: Authority) -> None:
        """Let the parties that are started from now on use TLS, each with its own certificate."""
        self.certificates = {
            rank: authority.party(f"silo{rank}" if rank else "server") for rank in range(self.silos + 1)
        }

    def start(self, rank: int, *words: str, config: dict[str, Any] | None = None) -> Party:
        """`mrtf run --rank RANK` in a process of its own."""
        config = deepcopy(config or self.config)
        config["comm_args"] |= self.certificates.get(rank, {})
        file = write_yaml(self.folder / f"{rank}-{len(self.parties)}.yaml", config)
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
    # A process group of its own, so that Ctrl-C at the tests does not reach it.
    os.setsid()
    sys.exit(run(words))


def _command_line(words: list[str]) -> int:
    from mrtf_fedml.cli import main

    return main(words)
