"""Seconds per round in one process and over MPI ranks, by phase.

python benchmarks/mpi_scaling.py [--cf FILE.yaml] [--rounds N] [--set KEY=VALUE ...]

Server and trainers work one after the other. So a server and one trainer with 2 threads each need the same 2 cores as
one process with 2 threads, and as a server and two trainers with 1 thread each.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
_TRAINED = re.compile(r"round=(\d+) client=\d+ samples=\d+ seconds=([\d.]+)")


@dataclass(frozen=True)
class Case:
    """One variant; 1 rank is one process without MPI."""

    name: str
    ranks: int
    threads: int
    refine_on: str = "server"


CASES = (
    Case("one process, 2 threads", 1, 2),
    Case("server + 1 trainer, 2 threads", 2, 2),
    Case("server + 2 trainers, 1 thread", 3, 1),
    Case("the same, refine_on: teachers", 3, 1, "teachers"),
)


@dataclass(frozen=True)
class Seconds:
    """Seconds of a round, medians over the rounds."""

    local: float
    communication: float
    refining: float

    @property
    def total(self) -> float:
        """All of the round."""
        return self.local + self.communication + self.refining


def main() -> None:
    """Run every case and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cf", default=str(ROOT / "fedml_configs" / "quickstart.yaml"))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    results: dict[str, Seconds] = {}
    print(f"{'':<32}{'s/round':>8}{'local':>8}{'comm.':>8}{'refine':>8}{'speed':>8}")
    for case in CASES:
        with TemporaryDirectory() as folder:
            results[case.name] = measure(case, Path(folder) / "run", options)
        seconds, first = results[case.name], results[CASES[0].name]
        shares = [seconds.local, seconds.communication, seconds.refining]
        print(
            f"{case.name:<32}{seconds.total:>8.3f}"
            + "".join(f"{share / seconds.total:>8.0%}" for share in shares)
            + f"{first.total / seconds.total:>8.2f}",
            flush=True,
        )


def measure(case: Case, run_dir: Path, options: argparse.Namespace) -> Seconds:
    """Run the case and read its run directory."""
    settings = [f"run_dir={run_dir}", f"comm_round={options.rounds}", f"threads={case.threads}", *options.set]
    settings += [f"refine_on={case.refine_on}", f"backend={'sp' if case.ranks == 1 else 'MPI'}"]
    words = [word for setting in settings for word in ("--set", setting)]
    here = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": os.pathsep.join([here, os.environ["PATH"]])}
    environment.pop("OMP_NUM_THREADS", None)
    if case.ranks == 1:
        command = ["mrtf", "run", "--cf", options.cf, *words]
    else:
        command = ["bash", str(ROOT / "launch" / "mpirun.sh"), str(case.ranks), options.cf, *words]
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    if process.returncode != 0:
        sys.exit(f"{case.name} failed:\n{process.stderr}")
    return read_run(run_dir)


def read_run(run_dir: Path) -> Seconds:
    """The medians without the first round, which warms up. The training time is that of the slowest rank."""
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()][1:]
    trained: dict[int, list[float]] = defaultdict(list)
    for log in sorted((run_dir / "logs").glob("rank-*.log")) if (run_dir / "logs").exists() else []:
        of_rank: dict[int, float] = defaultdict(float)
        for round_index, seconds in _TRAINED.findall(log.read_text()):
            of_rank[int(round_index)] += float(seconds)
        for round_index, total in of_rank.items():
            trained[round_index].append(total)
    # What was trained while the server refined is not waited for, and no part of the round's seconds.
    local = [min(line["client_seconds"], max(trained.get(line["round"], [line["client_seconds"]]))) for line in lines]
    communication = [line["client_seconds"] - seconds for line, seconds in zip(lines, local, strict=True)]
    refining = [line["server_seconds"] for line in lines]
    return Seconds(*(statistics.median(part) for part in (local, communication, refining)))


if __name__ == "__main__":
    main()
