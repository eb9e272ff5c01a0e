"""`ranks`: one process against a server with one and two trainers over MPI."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from .measure import REPETITIONS, Row, ratio_row

#: Who refines, with how many ranks; 1 is one process without MPI.
_CASES = ((1, "server"), (2, "server"), (3, "server"), (3, "teachers"))


def measure_ranks(quick: bool) -> list[Row]:
    """Rounds of each case against those of one process, one thread per rank."""
    mpirun = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if mpirun is None:
        return [
            Row("MPI", 0.0, 0.0, 0.0, "", None, {"not_measured": "there is no mpirun; pip install mrtf_fedml[mpi]"})
        ]
    parts = {case: _run_rounds(mpirun, *case, quick=quick) for case in (_CASES[:2] if quick else _CASES)}
    alone = [local + refine for local, refine in parts[_CASES[0]]]
    return [
        ratio_row(
            f"{number} rank{'s' if number > 1 else ''}, refine_on: {who}",
            alone,
            [local + refine for local, refine in rounds],
            "a round of one process / a round",
            "more",
            seconds_clients_and_messages=[local for local, _ in rounds],
            seconds_server=[refine for _, refine in rounds],
        )
        for (number, who), rounds in parts.items()
    ]


def _run_rounds(mpirun: str, number: int, refine_on: str, quick: bool) -> list[tuple[float, float]]:
    """Seconds of the clients including messages, and of the server, per round without the first, which warms up."""
    rounds = 2 if quick else REPETITIONS + 1
    with TemporaryDirectory() as folder:
        file, run_dir = Path(folder) / "scene.yaml", Path(folder) / "run"
        file.write_text(yaml.safe_dump(_configuration(run_dir, rounds, number, refine_on, quick)))
        command = [sys.executable, "-m", "mrtf_fedml.cli", "run", "--cf", str(file)]
        if number > 1:
            command = [mpirun, "--allow-run-as-root", "--oversubscribe", "-n", str(number), *command]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
        if ended.returncode != 0:
            raise RuntimeError(f"{number} ranks, refine_on {refine_on}, failed: {ended.stderr[-2000:]}")
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [(line["client_seconds"], line["server_seconds"]) for line in lines[1:]]


def _configuration(run_dir: Path, rounds: int, number: int, refine_on: str, quick: bool) -> dict[str, dict[str, Any]]:
    return {
        "common_args": {"training_type": "simulation", "run_dir": str(run_dir), "keep_features": False},
        "data_args": {"dataset": "digits", "partition_method": "iid"},
        "model_args": {"model": "mlp", "hidden_size": 16 if quick else 1024},
        "train_args": {
            "federated_optimizer": "MrTF",
            "client_num_in_total": 20,
            "client_num_per_round": 4,
            "comm_round": rounds,
            "epochs": 1 if quick else 5,
            "batch_size": 16,
        },
        "comm_args": {"backend": "sp" if number == 1 else "MPI"},
        "mrtf_args": {"refine_steps": 2 if quick else 50, "refine_on": refine_on},
    }
