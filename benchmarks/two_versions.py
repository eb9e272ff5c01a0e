"""Compare the CPU seconds of two checkouts, which alternate on the same setups.

    python benchmarks/two_versions.py OLD_CHECKOUT NEW_CHECKOUT [--repetitions 5]

Each run is a process with one thread. The cost of imports and start is measured by a run of one round and subtracted,
so that a row shows the rounds alone; the start has its own row. A ratio above 1 means that the new checkout is slower.
The spread over the repetitions is shown next to each ratio.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from checkouts import parse_checkouts

#: By name, the changes to the common setup, and the number of measured rounds: enough that their seconds exceed the
#: noise of the start.
SETUPS: dict[str, tuple[dict[str, object], int]] = {
    "MrTF, MLP": ({"federated_optimizer": "MrTF", "model": "mlp", "client_num_in_total": 20}, 20),
    "FedAvg, MLP": ({"federated_optimizer": "FedAvg", "model": "mlp", "client_num_in_total": 20}, 50),
    "Scaffold, MLP": ({"federated_optimizer": "Scaffold", "model": "mlp", "client_num_in_total": 20}, 50),
    "FedAvg, many small clients": (
        {"federated_optimizer": "FedAvg", "model": "lr", "client_num_in_total": 100, "client_num_per_round": 50},
        160,
    ),
}


def main() -> None:
    options = parse_checkouts(__doc__)
    print(f"{'setup':<30}{'old, CPU s':>12}{'new, CPU s':>12}{'new / old':>12}   spread")
    for name, (changes, rounds) in SETUPS.items():
        starts: list[float] = []
        ratios, olds, news = [], [], []
        for _ in range(options.repetitions):
            seconds = {}
            for checkout in (options.old, options.new):
                start = cpu_seconds(checkout, changes, rounds=1)
                seconds[checkout] = start, cpu_seconds(checkout, changes, rounds) - start
            olds.append(seconds[options.old][1])
            news.append(seconds[options.new][1])
            ratios.append(news[-1] / olds[-1])
            starts.append(seconds[options.new][0] / seconds[options.old][0])
        print(row(name, olds, news, ratios), flush=True)
        print(f"{'  start and one round':<54}{statistics.median(starts):>12.3f}   {spread(starts)}", flush=True)


def row(name: str, olds: list[float], news: list[float], ratios: list[float]) -> str:
    """One line of the table."""
    old, new = statistics.median(olds), statistics.median(news)
    return f"{name:<30}{old:>12.2f}{new:>12.2f}{statistics.median(ratios):>12.3f}   {spread(ratios)}"


def spread(ratios: list[float]) -> str:
    """The smallest and the largest value."""
    return f"{min(ratios):.3f} to {max(ratios):.3f}"


def cpu_seconds(checkout: Path, changes: dict[str, object], rounds: int) -> float:
    """CPU seconds of a run of this many rounds, including its start."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.yaml"
        file.write_text(yaml.safe_dump(configuration(changes, rounds, Path(folder) / "run")))
        environment = {**os.environ, "PYTHONPATH": str(checkout.resolve()), "OMP_NUM_THREADS": "1", "HOME": folder}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "mrtf_fedml.cli", "run", "--cf", str(file)],
            cwd=folder,
            env=environment,
            check=True,
            capture_output=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def configuration(changes: dict[str, object], rounds: int, run_dir: Path) -> dict[str, dict[str, object]]:
    """FedML's sections on digits, with keys that every checkout has."""
    train = {
        "client_num_per_round": 5,
        "comm_round": rounds,
        "epochs": 2,
        "batch_size": 16,
        "learning_rate": 0.03,
        **{key: value for key, value in changes.items() if key != "model"},
    }
    return {
        "common_args": {"training_type": "simulation", "random_seed": 0, "run_dir": str(run_dir)},
        "data_args": {"dataset": "digits", "partition_method": "iid"},
        "model_args": {"model": changes["model"]},
        "train_args": train,
        "validation_args": {"frequency_of_the_test": 1000},
        "comm_args": {"backend": "sp"},
        "mrtf_args": {"refine_steps": 100},
    }


if __name__ == "__main__":
    main()
