"""The time of a run from `mrtf run` to the end of its first training step.

    python benchmarks/first_step.py [CHECKOUT ...] [--repetitions 5]

Runs the quickstart in a process with one thread; several checkouts alternate. On a shared machine only the CPU seconds
are comparable.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checkouts import format_spread

HERE = Path(__file__).resolve().parents[1]

#: Ends at the first training step; imports only what `mrtf run` imports.
CHILD = """
import contextlib, os, sys, time
began = float(sys.argv.pop(1))
from mrtf_fedml import cli
# The second name is that of older checkouts.
(getattr(cli, "limit_thread_spinning", None) or cli.wait_passively)()
with (getattr(cli, "pause_garbage_collector", None) or getattr(cli, "without_collecting", contextlib.nullcontext))():
    from mrtf_fedml.algorithms import local_training as training
    train = training.LocalSGD.step
def step(self):
    train(self)
    print("first step", time.process_time(), time.time() - began, flush=True)
    os._exit(0)
training.LocalSGD.step = step
cli.main(sys.argv[1:])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, nargs="*", default=[HERE])
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    taken: dict[Path, list[tuple[float, float]]] = {checkout: [] for checkout in options.checkouts}
    for _ in range(options.repetitions):
        for checkout in taken:
            taken[checkout].append(first_step(checkout))
    for checkout, both in taken.items():
        for name, seconds in zip(("CPU seconds", "wall seconds"), zip(*both, strict=True), strict=True):
            print(f"{checkout}: {name} {format_spread(seconds)}", flush=True)


def first_step(checkout: Path) -> tuple[float, float]:
    """CPU and wall seconds of one run up to its first step."""
    config = HERE / "fedml_configs" / "quickstart.yaml"
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(checkout.resolve()), "OMP_NUM_THREADS": "1", "HOME": folder}
        words = ["run", "--cf", str(config), "--set", f"run_dir={folder}/run"]
        process = subprocess.run(
            [sys.executable, "-c", CHILD, str(time.time()), *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
    line = next((line for line in process.stdout.splitlines() if line.startswith("first step")), None)
    if line is None:
        raise SystemExit(f"{checkout}: no step was done\n{process.stderr}")
    _, _, cpu, wall = line.split()
    return float(cpu), float(wall)


if __name__ == "__main__":
    main()
