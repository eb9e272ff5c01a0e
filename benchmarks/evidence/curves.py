"""Accuracy curves of setups, in one process and without FedML: many small runs in little time.

    python benchmarks/evidence/curves.py DATA OUT SETUP[,SETUP] ALGORITHM[,ALGORITHM] SEED[,SEED] [KEY=VALUE ...]
    python benchmarks/evidence/curves.py --show OUT     # a table of what is there
    python benchmarks/evidence/curves.py --draw OUT/SETUP.json FIGURE.png FedAvg Scaffold MrTF:tuned

One JSON file per setup in OUT has one entry per algorithm, changes and seed; what is there is not run again. The
accuracies are those of `mrtf run` with the same settings and one thread. Labels are used only for scoring.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from setups import SETUPS

from mrtf_fedml.algorithms import ClientTask, ClientUpdate, build_algorithm, import_algorithms
from mrtf_fedml.config import RunSettings
from mrtf_fedml.config.loader import apply_overrides, read_config
from mrtf_fedml.data import TransductiveDataset, load
from mrtf_fedml.models import create_model
from mrtf_fedml.training.round import AggregationHooks, Backend, RoundTasks, run_round
from mrtf_fedml.training.server import Server

ROOT = Path(__file__).resolve().parents[2]


class InProcess(Backend):
    """Trains the clients one after another on one model."""

    def __init__(self, server: Server, dataset: TransductiveDataset, model: torch.nn.Module) -> None:
        self.algorithm, self.dataset, self.model = server.algorithm, dataset, model

    def train_clients(self, tasks: RoundTasks) -> list[ClientUpdate]:
        """The updates, in the order of the clients."""
        updates = []
        for client in tasks.clients:
            data, samples = self.dataset[5][client], self.dataset[4][client]
            task = ClientTask(client, tasks.round, tasks.weights, data, samples, tasks.payload(client))
            updates.append(self.algorithm.train_client(self.model, task))
        return updates


def run_curve(config: Mapping[str, Mapping[str, Any]], observe: Any = None) -> list[float]:
    """The accuracy after each round."""
    settings = RunSettings.from_config(config)
    dataset = load(settings)
    assert dataset.evaluator is not None
    seed = settings.common.random_seed
    models = [create_model(settings.model, list(dataset.input_shape), dataset.class_num, seed) for _ in range(2)]
    server = Server(build_algorithm(settings), models[0])
    server.bind_server_set(dataset.server_inputs, dataset.class_num)
    backend, curve = InProcess(server, dataset, models[1]), []
    for _ in range(settings.train.comm_round):
        server.state, record = run_round(server, backend, AggregationHooks(), lambda clients: None)
        logits = server.algorithm.prediction_logits(server.state, server.context)
        curve.append(round(dataset.evaluator.score(logits), 5))
        if observe is not None:
            observe(server, record, dataset.evaluator)
    return curve


def scores_of(curve: Sequence[float]) -> tuple[float, float, float]:
    """A curve's mean over all rounds, its mean over the last ten, and its last accuracy."""
    return statistics.fmean(curve), statistics.fmean(curve[-10:]), curve[-1]


def mean_scores(curves: Iterable[Sequence[float]]) -> list[float]:
    """The means of the `scores_of` these curves."""
    return [statistics.fmean(each) for each in zip(*map(scores_of, curves), strict=True)]


def algorithm_changes(algorithm: str) -> list[str]:
    """The settings of a name such as `mrtf compare` takes: FedAvg, MrTF:tuned, MrTF:tuned+Scaffold."""
    name, _, base = algorithm.partition("+")
    is_preset = name.startswith("MrTF:")
    optimizer, preset = name.split(":") if is_preset else (name, "")
    changes = {"federated_optimizer": optimizer, "preset": preset, "base": base}
    return [f"{key}={value}" for key, value in changes.items() if value]


def main(data: str, out: str, setups: str, algorithms: str, seeds: str, *changes: str) -> None:
    """Run what is missing."""
    torch.set_num_threads(1)
    folder = Path(out).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(data)
    for seed in seeds.split(","):
        for name in setups.split(","):
            for algorithm in algorithms.split(","):
                _run_one(folder, name, algorithm, int(seed), changes)


def show(out: str) -> None:
    """Print one line per setup and algorithm: the mean over the seeds ± their standard deviation."""
    print("| setup | algorithm | seeds | mean over rounds | last ten | final |\n|---|---|---|---|---|---|")
    files = {file.stem: file for file in Path(out).glob("*.json")}
    for name in (name for name in SETUPS if name in files):
        for algorithm, by_seed in json.loads(files[name].read_text()).items():
            scores = zip(*(scores_of(curve) for curve in by_seed.values()), strict=True)
            cells = [SETUPS[name].title, algorithm, str(len(by_seed)), *map(_with_deviation, scores)]
            print(f"| {' | '.join(cells)} |")


def draw(results: str, figure: str, *algorithms: str) -> None:
    """Draw the mean curve of each algorithm over its seeds, with the range of the seeds."""
    import matplotlib.pyplot as plt

    by_algorithm = json.loads(Path(results).read_text())
    (seeds,) = {len(by_algorithm[name]) for name in algorithms}
    canvas, axes = plt.subplots(figsize=(7.5, 4.5))
    for name in algorithms:
        curves = list(zip(*by_algorithm[name].values(), strict=True))
        rounds = range(1, len(curves) + 1)
        (line,) = axes.plot(rounds, [statistics.fmean(each) for each in curves], label=name.split(",")[0])
        axes.fill_between(rounds, list(map(min, curves)), list(map(max, curves)), color=line.get_color(), alpha=0.15)
    axes.set(xlabel="round", ylabel="accuracy", title=f"{SETUPS[Path(results).stem].title}, {seeds} seeds")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    canvas.tight_layout()
    canvas.savefig(figure, dpi=100)


def _with_deviation(values: tuple[float, ...]) -> str:
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{deviation}"


def _run_one(folder: Path, name: str, algorithm: str, seed: int, changes: tuple[str, ...]) -> None:
    file, key = folder / f"{name}.json", " ".join((algorithm, *changes))
    results = json.loads(file.read_text()) if file.exists() else {}
    if str(seed) in results.get(key, {}):
        return
    setup = SETUPS[name]
    words = [*setup.changes, *algorithm_changes(algorithm), f"random_seed={seed}", *changes]
    import_algorithms({}, words)
    began = time.perf_counter()
    curve = run_curve(apply_overrides(read_config(ROOT / "fedml_configs" / f"{setup.config}.yaml"), words))
    results = json.loads(file.read_text()) if file.exists() else {}
    results.setdefault(key, {})[str(seed)] = curve
    # One line per curve, so that two results can be compared with diff.
    text = json.dumps(results, indent=1)
    file.write_text(re.sub(r"\[[^][]*\]", lambda curve: " ".join(curve.group().split()), text) + "\n")
    figures = " ".join(f"{score:.4f}" for score in scores_of(curve))
    print(f"{name} {key} {seed}: {figures} ({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--show"] and len(sys.argv) == 3:
        show(sys.argv[2])
    elif sys.argv[1:2] == ["--draw"] and len(sys.argv) > 4:
        draw(*sys.argv[2:])
    elif len(sys.argv) < 6:
        sys.exit(__doc__)
    else:
        main(*sys.argv[1:])
