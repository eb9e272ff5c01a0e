"""Real ranks under a real mpirun, started as a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import small_config, write_yaml

ROOT = Path(__file__).parents[3]
#: Ranks import FedML, which takes a core some 10 s each; on a loaded machine several times that.
START_SECONDS = 600
#: Within so long a broken run must be down: a second on an idle machine.
END_SECONDS = 120

MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root"]


def environment() -> dict[str, str]:
    """With this Python's mpirun and mrtf, and this copy of the package, first."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(path),
    }


def launched(ranks: int, *words: str | Path, seconds: float = START_SECONDS) -> subprocess.CompletedProcess[str]:
    """`launch/mpirun.sh`, to its end."""
    command = ["bash", str(ROOT / "launch" / "mpirun.sh"), str(ranks), *map(str, words)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=seconds)


def program(ranks: int, file: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """A Python program of this folder under mpirun, to its end."""
    here = Path(__file__).parent / file
    command = [*MPIRUN, "-n", str(ranks), sys.executable, "-W", "ignore", str(here), *map(str, words)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=START_SECONDS)


@contextmanager
def running(ranks: int, *words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """`launch/mpirun.sh`, going on meanwhile; it is down, with all its ranks, when the block is left."""
    command = ["bash", str(ROOT / "launch" / "mpirun.sh"), str(ranks), *map(str, words)]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def configuration(folder: Path, name: str = "config.yaml", **changes: Any) -> Path:
    """A run of seconds on digits, for any backend."""
    return write_yaml(folder / name, small_config(**{"backend": "MPI", **changes}))


def rank_processes(mpirun: int) -> dict[int, int]:
    """The process of each rank that this mpirun started and that still lives."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            variables = (folder / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue  # it ended while we looked
        rank = [
            value[len(b"OMPI_COMM_WORLD_RANK=") :] for value in variables if value.startswith(b"OMPI_COMM_WORLD_RANK=")
        ]
        if parent == mpirun and rank:
            found[int(rank[0])] = int(folder.name)
    return found


def wait_for(happened: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    """Until it has happened."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"nothing happened within {seconds} s"
        time.sleep(0.05)


def is_gone(process: int) -> bool:
    """Whether a process has ended; a zombie counts as ended.

    Not while one of its threads is still on its way out: with the last of them its files are closed, and its locks go.
    """
    try:
        is_dead = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return is_dead and len(list(Path(f"/proc/{process}/task").iterdir())) == 1
    except OSError:
        return True


def first_round_done(run_dir: Path) -> bool:
    """Whether there is a state to go on from."""
    return (run_dir / "state" / "server.safetensors").exists()


def changed_config(file: Path, **changes: Any) -> Path:
    """The same file with other keys in `device_args`."""
    config = yaml.safe_load(file.read_text())
    config["device_args"].update(changes)
    return write_yaml(file, config)
