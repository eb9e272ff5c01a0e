"""What predicts at the end: the last model of `tuned`, a mean over its last rounds, its targets, or a longer student.

    python benchmarks/evidence/last_models.py DATA RESULTS.jsonl SETUP[,SETUP] SEED[,SEED]
    python benchmarks/evidence/last_models.py --show RESULTS.jsonl

Each line of RESULTS.jsonl has the accuracy after every round of each candidate, all from one run; runs that are there
are not repeated. `weights N` is the mean of the last N rounds' prediction weights, `decay N` their average with
polynomial decay (`average_rounds` is that with 32; the run itself is without), `probabilities 3` the mean of the last
three models' probabilities for the server's samples. `ensemble` is the round's weighted teachers, `targets` what
the smoothing makes of them. `500 more steps` distills the model that predicts once more, towards the targets.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from curves import ROOT, algorithm_changes, mean_scores, run_curve
from setups import OURS, SETUPS

from mrtf_fedml.algorithms.mrtf.model_selection import average_rounds
from mrtf_fedml.config.loader import apply_overrides, read_config
from mrtf_fedml.models.state_dict import average
from mrtf_fedml.rng import torch_generator

_NUMBERS = (2, 3, 5)
_DECAYS = (4, 8, 16, 32)
_MORE_STEPS = 500


class Candidates:
    """Scores the candidates after each round."""

    def __init__(self) -> None:
        self.weights: deque[Any] = deque(maxlen=max(_NUMBERS))
        self.probabilities: deque[torch.Tensor] = deque(maxlen=3)
        self.averages: dict[int, Any] = {}
        self.curves: dict[str, list[float]] = {}

    def __call__(self, server: Any, record: Any, evaluator: Any) -> None:
        """Called by `run_curve`."""
        self.weights.append(server.state.prediction_weights)
        logits = server.context.logits(server.state.prediction_weights)
        self.probabilities.append(logits.double().softmax(dim=1))
        scores = {"last": logits, "probabilities 3": torch.stack(list(self.probabilities)).mean(dim=0)}
        targets = record.report.predictions["targets"]
        scores |= {"ensemble": record.report.predictions["ensemble"], "targets": targets}
        longer = replace(server.algorithm.distillation(), refine_steps=_MORE_STEPS)
        generator = torch_generator(0, "more steps", record.round)
        weights = server.context.distill_weights(server.state.prediction_weights, targets, longer, generator)
        scores[f"{_MORE_STEPS} more steps"] = server.context.logits(weights)
        for number in _NUMBERS:
            last = list(self.weights)[-number:]
            scores[f"weights {number}"] = server.context.logits(average(last, [1 / len(last)] * len(last)))
        for decay in _DECAYS:
            newest = server.state.prediction_weights
            self.averages[decay] = average_rounds(newest, self.averages.get(decay, newest), record.round, decay)
            scores[f"decay {decay}"] = server.context.logits(self.averages[decay])
        for name, predictions in scores.items():
            self.curves.setdefault(name, []).append(round(evaluator.score(predictions), 5))


def main(data: str, results: str, setups: str, seeds: str) -> None:
    """Run what is missing."""
    torch.set_num_threads(1)
    file = Path(results).resolve()
    done = {(line["setup"], line["seed"]) for line in _read(file)}
    os.chdir(data)
    for seed in map(int, seeds.split(",")):
        for name in setups.split(","):
            if (name, seed) in done:
                continue
            setup, candidates = SETUPS[name], Candidates()
            words = [*setup.changes, *algorithm_changes(OURS), f"random_seed={seed}", "average_rounds=false"]
            run_curve(apply_overrides(read_config(ROOT / "fedml_configs" / f"{setup.config}.yaml"), words), candidates)
            with file.open("a") as lines:
                lines.write(json.dumps({"setup": name, "seed": seed, "accuracy": candidates.curves}) + "\n")
    show(str(file))


def show(results: str) -> None:
    """Print, per setup and candidate, the accuracy less that of the last model: over the rounds / last ten / final."""
    runs = _read(Path(results))
    names = [name for name in runs[0]["accuracy"] if name != "last"]
    print("\n".join([f"| setup | seeds | last model | {' | '.join(names)} |", "|" + "---|" * (len(names) + 3)]))
    gains: dict[str, list[float]] = {name: [] for name in names}
    for setup in dict.fromkeys(run["setup"] for run in runs):
        rows = [run["accuracy"] for run in runs if run["setup"] == setup]
        last = mean_scores(row["last"] for row in rows)
        cells = [setup, str(len(rows)), " / ".join(f"{score:.3f}" for score in last)]
        for name in names:
            differences = [score - own for score, own in zip(mean_scores(row[name] for row in rows), last, strict=True)]
            gains[name].append(differences[-1])
            cells.append(" / ".join(f"{difference:+.3f}" for difference in differences))
        print(f"| {' | '.join(cells)} |")
    for name, each in gains.items():
        better, worse = sum(gain > 0 for gain in each), sum(gain < 0 for gain in each)
        print(f"{name}: final {statistics.fmean(each):+.4f} on average, better on {better}, worse on {worse} setups")


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


if __name__ == "__main__":
    if sys.argv[1:2] == ["--show"] and len(sys.argv) == 3:
        show(sys.argv[2])
    elif len(sys.argv) != 5:
        sys.exit(__doc__)
    else:
        main(*sys.argv[1:])
