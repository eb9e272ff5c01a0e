"""What it gains that clients train while the server refines (`feedback: never`): two checkouts by turns, over MPI.

    git worktree add ../before 9defe31   # or any checkout from before it
    python benchmarks/overlap.py ../before . [--turns 3] [--ranks 2 3]

Each line is a run: wall seconds per round that the server waited for clients, and that it refined, medians of seven
rounds. Wall seconds of cores that others share differ from turn to turn: look at the pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml


def main() -> None:
    """Run all turns, and print each pair's ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3])
    options = parser.parse_args()
    seconds: dict[tuple[int, Path], list[float]] = defaultdict(list)
    for turn in range(options.turns):
        for ranks in options.ranks:
            for checkout in (options.old, options.new):
                local, refining = measured(checkout, ranks)
                seconds[ranks, checkout].append(local + refining)
                print(f"turn {turn}, {ranks} ranks, {checkout}: {local:.2f} + {refining:.2f}", flush=True)
    for ranks in options.ranks:
        pairs = zip(seconds[ranks, options.old], seconds[ranks, options.new], strict=True)
        print(f"{ranks} ranks, times faster:", *(f"{old / new:.2f}" for old, new in pairs))


def measured(checkout: Path, ranks: int) -> tuple[float, float]:
    """A run's seconds per round: waiting for clients, refining. The first round, which warms up, is left out."""
    with TemporaryDirectory() as folder:
        run_dir, file = Path(folder) / "run", Path(folder) / "scene.yaml"
        file.write_text(yaml.safe_dump(scene(run_dir)))
        told = subprocess.run(
            ["bash", str(checkout.resolve() / "launch" / "mpirun.sh"), str(ranks), str(file)],
            env={
                **os.environ,
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
                "PYTHONPATH": str(checkout.resolve()),
            },
            capture_output=True,
            text=True,
        )
        if told.returncode != 0:
            sys.exit(f"{checkout} failed:\n{told.stderr}")
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()][1:]
    local, refining = (statistics.median(line[key] for line in lines) for key in ("seconds_local", "seconds_refine"))
    return local, refining


def scene(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Digits, a wide MLP, clients that train about as long as the server refines."""
    return {
        "common_args": {"training_type": "simulation", "run_dir": str(run_dir), "keep_features": False},
        "data_args": {"dataset": "digits", "partition_method": "iid"},
        "model_args": {"model": "mlp", "hidden_size": 1024},
        "train_args": {
            "federated_optimizer": "MrTF",
            "client_num_in_total": 20,
            "client_num_per_round": 4,
            "comm_round": 8,
            "epochs": 20,
            "batch_size": 16,
        },
        "comm_args": {"backend": "MPI"},
        "device_args": {"threads": 1},
        "mrtf_args": {"refine_steps": 60, "feedback": "never"},
    }


if __name__ == "__main__":
    main()
