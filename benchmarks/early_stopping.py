"""`python benchmarks/early_stopping.py FOLDER`: what `train_args.early_stopping` saves and costs on six tables.

Each table is divided among clients by Dirichlet(0.5), a quarter of its rows is the server's, and `tuned` runs for 60
rounds with two seeds. From the recorded estimates follows after which round a run would have stopped: an early stop
changes nothing before it. FOLDER keeps finished runs, so that an interrupted command continues.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn import datasets

import mrtf_fedml
from mrtf_fedml.callbacks.early_stopping import has_stalled

ROUNDS, CLIENTS, SEEDS, PATIENCE = 60, 8, (0, 1), (5, 10, 15)
Table = tuple[str, npt.NDArray[np.float32], npt.NDArray[np.int64]]


def main() -> int:
    """Run what is missing and print one line per run, then the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    changes: dict[int, list[tuple[int, float]]] = {patience: [] for patience in PATIENCE}
    for seed in SEEDS:
        for name, x, y in tables():
            run_dir = folder / f"{name}-{seed}"
            if not (run_dir / "summary.json").exists():
                train(x, y, seed, run_dir)
            lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
            words = [f"{name:<10} seed {seed}  final {lines[-1]['acc']:.3f}"]
            for patience in PATIENCE:
                last = stop_round(lines, patience)
                change = lines[last - 1]["acc"] - lines[-1]["acc"]
                changes[patience].append((last, change))
                words.append(f"patience {patience}: {last} rounds, {change:+.3f}")
            print("  ".join(words), flush=True)
    for patience, runs in changes.items():
        rounds, differences = zip(*runs, strict=True)
        print(
            f"patience {patience}: {statistics.fmean(rounds):.0f} of {ROUNDS} rounds; accuracy changes by "
            f"{statistics.fmean(differences):+.4f} ± {statistics.stdev(differences):.4f}, "
            f"at worst by {min(differences):+.3f}"
        )
    return 0


def tables() -> Iterator[Table]:
    """Three of scikit-learn's tables and three made ones: easy, with many informative features, and noisy."""
    for name, load in (
        ("cancer", datasets.load_breast_cancer),
        ("wine", datasets.load_wine),
        ("digits", datasets.load_digits),
    ):
        x, y = load(return_X_y=True)
        yield name, x.astype(np.float32), y
    made = {
        "easy": {"n_samples": 1200, "n_features": 5, "n_informative": 5, "n_redundant": 0, "n_classes": 4}
        | {"n_clusters_per_class": 1, "class_sep": 1.5, "random_state": 7},
        "synthetic": {"n_samples": 2400, "n_features": 20, "n_informative": 10, "n_classes": 5}
        | {"n_clusters_per_class": 2, "class_sep": 1.2, "flip_y": 0.05, "random_state": 3},
        "noisy": {"n_samples": 1500, "n_features": 40, "n_informative": 8, "n_classes": 3}
        | {"class_sep": 0.8, "flip_y": 0.1, "random_state": 5},
    }
    for name, options in made.items():
        x, y = datasets.make_classification(**options)
        yield name, x.astype(np.float32), y


def train(x: npt.NDArray[np.float32], y: npt.NDArray[np.int64], seed: int, run_dir: Path) -> None:
    """One run; a quarter of the rows is the server's."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(y))
    server, others = order[: len(y) // 4], order[len(y) // 4 :]
    parts: list[list[int]] = [[] for _ in range(CLIENTS if len(y) > 200 else 3)]
    for label in np.unique(y):
        rows = generator.permutation(others[y[others] == label])
        ends = (np.cumsum(generator.dirichlet([0.5] * len(parts)))[:-1] * len(rows)).astype(int)
        for part, chosen in zip(parts, np.split(rows, ends), strict=True):
            part += chosen.tolist()
    clients = [(x[part], y[part]) for part in parts if len(part) >= 8]
    mrtf_fedml.label(
        x[server],
        clients,
        rounds=ROUNDS,
        y_server=y[server],
        classes=np.unique(y).tolist(),
        run_dir=str(run_dir),
        random_seed=seed,
        threads=1,
        progress=False,
    )


def stop_round(lines: list[dict[str, float | None]], patience: int) -> int:
    """After how many rounds a run with this patience ends."""
    estimates: list[float] = []
    for number, line in enumerate(lines, start=1):
        if line.get("estimated_accuracy") is not None:
            estimates.append(float(line["estimated_accuracy"] or 0.0))
        if has_stalled(estimates, patience):
            return number
    return len(lines)


if __name__ == "__main__":
    raise SystemExit(main())
