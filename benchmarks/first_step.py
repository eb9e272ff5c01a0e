"""How long a run takes from `mrtf run` to the end of its first step of training.

    python benchmarks/first_step.py [CHECKOUT ...] [--repetitions 5]

The quickstart's scene, each time in a process of its own with one thread; several checkouts take turns. CPU seconds
come first: a shared machine has no others to compare.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from turns import told

HERE = Path(__file__).resolve().parents[1]

#: Ends at the first step, as `mrtf run` would have come to it: nothing is imported that it would not import.
CHILD = """
import contextlib, os, sys, time
began = float(sys.argv.pop(1))
from mrtf_fedml import cli
cli.wait_passively()
with getattr(cli, "without_collecting", contextlib.nullcontext)():
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
            print(f"{checkout}: {name} {told(seconds)}", flush=True)


def first_step(checkout: Path) -> tuple[float, float]:
    """CPU and wall seconds of one run's way to its first step."""
    scene = HERE / "fedml_configs" / "quickstart.yaml"
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(checkout.resolve()), "OMP_NUM_THREADS": "1", "HOME": folder}
        words = ["run", "--cf", str(scene), "--set", f"run_dir={folder}/run"]
        said = subprocess.run(
            [sys.executable, "-c", CHILD, str(time.time()), *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
    line = next((line for line in said.stdout.splitlines() if line.startswith("first step")), None)
    if line is None:
        raise SystemExit(f"{checkout}: no step was made\n{said.stderr}")
    _, _, cpu, wall = line.split()
    return float(cpu), float(wall)


if __name__ == "__main__":
    main()
