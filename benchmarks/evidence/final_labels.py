"""The labels of `tuned` and of the baselines on the setups of docs/lab/evidence.md, and how far its statements hold.

    python benchmarks/evidence/final_labels.py DATA RESULTS.jsonl [--seeds 3] [--setups ...] [--runs FOLDER]
    python benchmarks/evidence/final_labels.py DATA RESULTS.jsonl --setups vowel letter --algorithms MrTF:tuned FedAvg
    python benchmarks/evidence/final_labels.py --show RESULTS.jsonl

Runs that RESULTS.jsonl has are not repeated. Baselines are run by `curves.py`; `tuned` by `mrtf_fedml.run`, which also
writes the estimated accuracy with its interval, `probability_correct` and `prediction_set`. By default the setups are
HELD_OUT of setups.py. Labels of the server are used only for scoring.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from curves import ROOT, algorithm_changes, mean_scores, run_curve, scores_of
from setups import HELD_OUT, OURS, SETUPS
from trust import calibration_error, calibration_error_by_chance

import mrtf_fedml
from mrtf_fedml.config.loader import apply_overrides, read_config

ALGORITHMS = (OURS, "FedAvg", "Scaffold", "FedProx", "FedOpt")


def configuration(setup: str, algorithm: str, seed: int) -> dict[str, dict[str, Any]]:
    """The sections of one run."""
    words = [*SETUPS[setup].changes, *algorithm_changes(algorithm), f"random_seed={seed}", "threads=1"]
    return apply_overrides(read_config(ROOT / "fedml_configs" / f"{SETUPS[setup].config}.yaml"), words)


def run(setup: str, algorithm: str, seed: int, runs: Path | None) -> dict[str, Any]:
    """One line of the results; the run directory of `tuned` is made in `runs`, None: its accuracies only."""
    config = configuration(setup, algorithm, seed)
    line = {"setup": setup, "algorithm": algorithm, "seed": seed}
    # The statements are compared with the labels of the file.
    if algorithm != OURS or runs is None or "data_file" not in config["data_args"]:
        return {**line, "accuracy": run_curve(config)}
    result = mrtf_fedml.run(config, progress=False, run_dir=str(runs / f"{setup}-{seed}"))
    curve = [round(float(each), 5) for each in result.metrics["acc"]]
    statements = _statements(result, server_labels(config, result.ids))
    return {**line, "accuracy": curve, "final": result.accuracy, **statements}


def server_labels(config: dict[str, dict[str, Any]], ids: Sequence[str]) -> Any:
    """The true labels of the server's samples, whose names are their rows in the file."""
    data = config["data_args"]
    return np.load(data.get("server_file") or data["data_file"])["y_test"][[int(name) for name in ids]]


def _statements(result: Any, labels: Any) -> dict[str, Any]:
    """What the run states about its labels, and whether it holds."""
    summary = result.summary
    stated = {
        "stated": summary["estimated_accuracy"],
        "interval": summary["estimated_accuracy_interval"],
        "reason": summary["no_estimate_because"],
        "warnings": len(result.warnings),
    }
    if stated["stated"] is None:
        return stated
    table = result.table()
    assert float(np.mean(result.labels == labels)) == result.accuracy, "the labels are not those of the samples"
    correct, sets = result.labels == labels, table["prediction_set"].str.split(" | ", regex=False)
    probability = table["probability_correct"].to_numpy()
    return {
        **stated,
        "validation_samples": summary["validation_samples"],
        "calibration_error": calibration_error(probability, correct),
        "by_chance": calibration_error_by_chance(probability),
        "covered": float(np.mean([str(label) in each for label, each in zip(labels, sets, strict=True)])),
        "set_size": float(sets.str.len().mean()),
    }


def final_table(runs: Sequence[dict[str, Any]]) -> str:
    """One line per setup: mean over rounds / last ten / final ± its deviation; the best final in bold."""
    measured = {each["algorithm"]: None for each in runs}
    algorithms = [name for name in {**dict.fromkeys(ALGORITHMS), **measured} if name in measured]
    lines = [f"| setup | seeds | {' | '.join(algorithms)} |", "|" + "---|" * (len(algorithms) + 2)]
    for setup in dict.fromkeys(each["setup"] for each in runs):
        curves = {
            name: [each["accuracy"] for each in runs if (each["setup"], each["algorithm"]) == (setup, name)]
            for name in algorithms
        }
        finals = {name: [curve[-1] for curve in each] for name, each in curves.items() if each}
        best = max(f"{statistics.fmean(final):.3f}" for final in finals.values())
        cells = [SETUPS[setup].title, str(len(finals[next(iter(finals))]))]
        for name in algorithms:
            if not curves[name]:
                cells.append("")
                continue
            final = f"{statistics.fmean(finals[name]):.3f}"
            final = f"**{final}**" if final == best else final
            if len(finals[name]) > 1:
                final += f" ± {statistics.stdev(finals[name]):.3f}"
            mean, last, _ = mean_scores(curves[name])
            cells.append(f"{mean:.3f} / {last:.3f} / {final}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def losses(runs: Sequence[dict[str, Any]]) -> str:
    """Where `tuned` is below a baseline: over the rounds, in the last ten, in the last round.

    Beyond noise: by more than two standard errors of the differences of the seeds, which share split, initial weights
    and clients.
    """
    scores = {(each["setup"], each["algorithm"], each["seed"]): scores_of(each["accuracy"]) for each in runs}
    lines = []
    for setup in dict.fromkeys(each["setup"] for each in runs):
        for place, part in enumerate(("mean", "last ten", "final")):
            found = []
            for name in dict.fromkeys(each["algorithm"] for each in runs):
                seeds = [seed for (s, a, seed) in scores if (s, a) == (setup, name) and (setup, OURS, seed) in scores]
                each = [scores[setup, OURS, seed][place] - scores[setup, name, seed][place] for seed in seeds]
                if each and statistics.fmean(each) < 0:
                    noise = 2 * statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else float("inf")
                    beyond = ", beyond noise" if -statistics.fmean(each) > noise else ""
                    found.append(f"{name} {statistics.fmean(each):+.3f}{beyond}")
            if found:
                lines.append(f"- {SETUPS[setup].title}, {part}: {'; '.join(found)}")
    return "\n".join(lines)


def statements_table(runs: Sequence[dict[str, Any]]) -> str:
    """One line per setup, and one for all: interval, calibration and prediction sets of `tuned`.

    *By chance* is the calibration error that perfect probabilities have with so many samples.
    """
    lines = [
        "| setup | runs | stated | interval contains the truth | mean distance | largest | width of the interval | "
        "calibration error | by chance | largest | sets of 90 % contain the truth | smallest | classes per set |",
        "|" + "---|" * 13,
    ]
    ours = [each for each in runs if "stated" in each]
    setups = dict.fromkeys(each["setup"] for each in ours)
    groups = [(SETUPS[name].title, [each for each in ours if each["setup"] == name]) for name in setups]
    for title, rows in [*groups, ("**all**", ours)]:
        stated = [each for each in rows if each["stated"] is not None]
        cells = [title, str(len(rows)), str(len(stated))]
        if stated:
            inside = sum(each["interval"][0] <= each["final"] <= each["interval"][1] for each in stated)
            distance = [abs(each["stated"] - each["final"]) for each in stated]
            width = [each["interval"][1] - each["interval"][0] for each in stated]
            error, chance, covered, size = (
                [each[key] for each in stated] for key in ("calibration_error", "by_chance", "covered", "set_size")
            )
            numbers = [statistics.fmean(distance), max(distance), statistics.fmean(width), statistics.fmean(error)]
            numbers += [statistics.fmean(chance), max(error), statistics.fmean(covered), min(covered)]
            numbers.append(statistics.fmean(size))
            cells += [f"{inside} of {len(stated)}", *(f"{number:.3f}" for number in numbers)]
        else:
            cells += [""] * 10
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def show(runs: Sequence[dict[str, Any]]) -> None:
    """Print the tables and where `tuned` loses; what it states only where there are statements."""
    print(final_table(runs))
    print("\n" + losses(runs))
    if any("stated" in each for each in runs):
        print("\n" + statements_table(runs))


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("results", type=Path)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, help="keep the run directories of `tuned` here")
    parser.add_argument("--accuracy-only", action="store_true", help="no run directories and no statements")
    parser.add_argument("--setups", nargs="+", choices=list(SETUPS), default=list(HELD_OUT), metavar="SETUP")
    parser.add_argument("--algorithms", nargs="+", default=ALGORITHMS, metavar="ALGORITHM")
    given = parser.parse_args()
    file = given.results.resolve()
    runs = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(each["setup"], each["algorithm"], each["seed"]) for each in runs}
    if not given.show:
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as scratch:
            directories = None if given.accuracy_only else (given.runs or Path(scratch)).resolve()
            os.chdir(given.data)
            # Seed by seed, so that a stopped comparison has all setups.
            for key in ((s, a, seed) for seed in range(given.seeds) for a in given.algorithms for s in given.setups):
                if key not in done:
                    runs.append(run(*key, directories))
                    with file.open("a") as lines:
                        lines.write(json.dumps(runs[-1]) + "\n")
    show(runs)


if __name__ == "__main__":
    main()
