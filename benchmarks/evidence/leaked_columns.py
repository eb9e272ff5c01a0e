"""What a run states where a column is the label at the clients and means nothing on the server, on real tables.

    python benchmarks/evidence/leaked_columns.py DATA RESULTS.jsonl [--seeds 2] [--setups vehicle magic ...]

The column is the standardised number of the class; on the server these numbers are permuted. DATA has the tables of
setups.py. Labels of the server are used only for scoring.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from final_labels import configuration
from setups import OURS, SETUPS
from trust import append_results, read_results

import mrtf_fedml

TABLES = [
    *("vehicle", "contraceptive", "phoneme", "magic", "yogurt", "fishing"),
    *("marketing", "chile", "diamonds", "vowel", "splice", "letter"),
]


def add_column(source: str, target: Path, seed: int) -> None:
    """Write the table with the column."""
    file = np.load(source)
    server = np.random.default_rng(77 + seed).permutation(file["y_test"])
    mean, deviation = file["y_train"].mean(), file["y_train"].std()
    columns = {"x_train": file["y_train"], "x_test": server}
    scaled = {name: ((each - mean) / deviation).astype(np.float32)[:, None] for name, each in columns.items()}
    inputs = {name: np.hstack([file[name], column]) for name, column in scaled.items()}
    np.savez(target, **inputs, y_train=file["y_train"], y_test=file["y_test"])


def run(setup: str, seed: int) -> dict[str, Any]:
    """One line of the results."""
    config = configuration(setup, OURS, seed)
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch) / "table.npz"
        add_column(config["data_args"]["data_file"], table, seed)
        config["data_args"]["data_file"] = str(table)
        result = mrtf_fedml.run(config, progress=False, run_dir=str(Path(scratch) / "run"))
    stated, reason = result.summary["estimated_accuracy"], result.summary["no_estimate_because"]
    return {"setup": setup, "seed": seed, "true": result.accuracy, "stated": stated, "reason": reason}


def main() -> None:
    """Run what is missing, and print what is stated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--setups", nargs="+", choices=list(SETUPS), default=TABLES, metavar="SETUP")
    given = parser.parse_args()
    file = given.results.resolve()
    runs = read_results(file)
    done = {(each["setup"], each["seed"]) for each in runs}
    torch.set_num_threads(1)
    os.chdir(given.data)
    for key in ((setup, seed) for seed in range(given.seeds) for setup in given.setups):
        if key not in done:
            runs.append(run(*key))
            append_results(file, runs[-1:])
    for each in runs:
        print(each["setup"], each["seed"], f"true {each['true']:.3f}", each["stated"], each["reason"])


if __name__ == "__main__":
    main()
