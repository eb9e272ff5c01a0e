"""How small the calibration error can be with so few held-out samples: `docs/lab/estimates.md`.

    python benchmarks/evidence/final_labels.py DATA RESULTS.jsonl --algorithms MrTF:tuned --runs RUNS
    python benchmarks/evidence/calibration_limit.py DATA RUNS

For each run of `tuned`, the probabilities of being right are fitted to the true labels of the server's samples. Then
held-out and server's samples are drawn from the run's samples, and are right with these probabilities: the clients'
samples are exactly like the server's, and the formula is the true one. What error is left is due to the numbers of
samples alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from final_labels import configuration, server_labels
from setups import OURS, SETUPS
from torch import Tensor
from trust import calibration_error

from mrtf_fedml.algorithms.evaluation import LOGIT_EDGES, logit_bin
from mrtf_fedml.diagnostics.label_trust import CALIBRATION_FILE, Calibration, fit_confidence

Array = npt.NDArray[np.float64]
DRAWS = 100


def fit(confidences: Tensor, labels: Array, correct: Array, classes: int) -> Calibration:
    """The calibration that samples of these confidences give."""
    histogram = np.zeros((classes, 2, len(LOGIT_EDGES) + 1))
    np.add.at(histogram, (labels, correct.astype(int), logit_bin(confidences).numpy()), 1)
    slope, intercepts = fit_confidence(histogram)
    return Calibration(slope, intercepts, len(correct), threshold=1.0, coverage=0.9, accept=None)


def errors_of(confidences: Tensor, labels: Array, correct: Array, held_out: int, classes: int) -> Iterator[float]:
    """The calibration errors of DRAWS runs whose samples are right with the probabilities fitted to `correct`."""
    probabilities = ((1 - confidences) / (classes - 1)).repeat(classes, 1).T.contiguous()
    probabilities[torch.arange(len(labels)), torch.tensor(labels)] = confidences
    true = fit(confidences, labels, correct, classes).assess(probabilities).probability_correct.numpy()
    rng = np.random.default_rng(0)
    for _ in range(DRAWS):
        rows = rng.integers(0, len(labels), held_out)
        right = rng.random(held_out) < true[rows]
        fitted = fit(confidences[rows], labels[rows], right, classes)
        stated = fitted.assess(probabilities, right.mean()).probability_correct.numpy()
        yield calibration_error(stated, rng.random(len(true)) < true)


def main(data: str, runs: str) -> None:
    """Print one line per setup: the measured error beside the mean and the 95 % quantile of the drawn ones."""
    runs = str(Path(runs).resolve())
    os.chdir(data)
    print("| setup | runs | held-out samples | server's samples | measured | drawn, mean | drawn, 95 % quantile |")
    print("|---|---|---|---|---|---|---|")
    totals, above = list[list[float]](), list[str]()
    for setup in SETUPS:
        rows = list[list[float]]()
        for run in sorted(Path(runs).glob(f"{setup}-[0-9]*")):
            summary = json.loads((run / "summary.json").read_text())
            calibration = Calibration.from_json(json.loads((run / CALIBRATION_FILE).read_text()))
            if summary["estimated_accuracy"] is None or calibration is None:
                continue
            table = pd.read_csv(run / "predictions.csv", dtype={"id": str})
            config = configuration(setup, OURS, int(run.name.rpartition("-")[2]))
            labels, confidences = table["label"].to_numpy(), torch.tensor(table["confidence"].to_numpy())
            correct = labels == server_labels(config, table["id"])
            classes, held_out = len(calibration.intercepts), round(calibration.samples)
            drawn = list(errors_of(confidences, labels, correct, held_out, classes))
            measured = calibration_error(table["probability_correct"].to_numpy(), correct)
            rows.append([held_out, len(table), measured, np.mean(drawn), np.quantile(drawn, 0.95)])
            if measured > rows[-1][-1]:
                above.append(run.name)
        if rows:
            print_row(SETUPS[setup].title, rows)
            totals += rows
    print_row("**all**", totals)
    print(f"\nAbove their own 95 % quantile: {len(above)} of {len(totals)} runs: {', '.join(above)}")


def print_row(title: str, rows: list[list[float]]) -> None:
    held_out, samples, *errors = np.mean(rows, axis=0)
    cells = [title, str(len(rows)), f"{held_out:.0f}", f"{samples:.0f}", *(f"{each:.3f}" for each in errors)]
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
