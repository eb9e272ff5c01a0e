"""What 20 labels of the server's samples give, by the order in which they are asked for.

    python benchmarks/evidence/few_labels.py RESULTS.jsonl --data FOLDER [--seeds 3] [--labels 20]

One run without labels per setup and seed; then each order chooses its samples by that run's probabilities, and the run
is repeated with their labels. Runs that RESULTS.jsonl has are not repeated; the table of all its runs is printed at the
end. The setups are those of trust.py.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trust

import mrtf_fedml

SETUPS = ("digits20", "digits5", "cancer", "wine", "usps", "mnist")


def by_margin(probabilities: Any) -> Any:
    """By the difference of the two largest probabilities."""
    largest = np.sort(probabilities, axis=1)
    return np.argsort(largest[:, -1] - largest[:, -2], kind="stable")


def by_class(probabilities: Any) -> Any:
    """By margin, in turn over the predicted classes."""
    order = by_margin(probabilities)
    predicted = probabilities.argmax(axis=1)[order]
    turn = np.zeros(len(order), dtype=int)
    for label in np.unique(predicted):
        turn[predicted == label] = np.arange((predicted == label).sum())
    return order[np.argsort(turn, kind="stable")]


def orders(probabilities: Any, seed: int) -> dict[str, Any]:
    """All samples in the orders that are compared."""
    return {
        "random": np.random.default_rng(seed).permutation(len(probabilities)),
        "confidence": np.argsort(probabilities.max(axis=1), kind="stable"),
        "margin": by_margin(probabilities),
        "margin, by class": by_class(probabilities),
    }


def run(setup: str, seed: int, folder: Path | None, number: int) -> list[dict[str, Any]]:
    """The runs of one setup: without labels, and with the labels that each order chooses."""
    x, y, clients, settings = trust.make(setup, seed, folder)

    def label(**changes: Any) -> Any:
        return mrtf_fedml.label(x, clients, y_server=y, progress=False, random_seed=seed, **{**settings, **changes})

    plain = label()
    before, results = plain.labels == y, []
    for name, order in orders(plain.probabilities, seed).items():
        chosen, others = order[:number], order[number:]
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "labels.csv"
            reason = "random" if name == "random" else "asked"
            file.write_text("index,label,reason\n" + "".join(f"{row},{y[row]},{reason}\n" for row in chosen))
            result = label(labels_file=str(file))
        after = result.labels == y
        results.append(
            {
                "setup": setup,
                "seed": seed,
                "order": name,
                "before": float(before.mean()),
                "gain": float(after.mean() - before.mean()),
                "gain_of_others": float(after[others].mean() - before[others].mean()),
                "wrong_before": float(1 - before[chosen].mean()),
                "random_correct": result.summary["labels_random_correct"],
            }
        )
    return results


def table(runs: list[dict[str, Any]]) -> str:
    """One line per setup and order."""
    lines = [
        "| setup | order | runs | accuracy before | gain | of the other samples | wrong before, of those asked |",
        "|" + "---|" * 7,
    ]
    for key in sorted({(each["setup"], each["order"]) for each in runs}):
        rows = [each for each in runs if (each["setup"], each["order"]) == key]
        cells = [f"{statistics.fmean(each['before'] for each in rows):.3f}"]
        for name in ("gain", "gain_of_others"):
            values = [each[name] for each in rows]
            cells.append(f"{statistics.fmean(values):+.4f} ± {statistics.pstdev(values):.4f}")
        cells.append(f"{statistics.fmean(each['wrong_before'] for each in rows):.2f}")
        lines.append(f"| {' | '.join([*key, str(len(rows)), *cells])} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the table."""
    parser = trust.make_parser(__doc__, seeds=3)
    parser.add_argument("--labels", type=int, default=20)
    parser.add_argument("--setups", nargs="+", default=SETUPS, choices=SETUPS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    runs = trust.read_results(given.results)
    done = {(each["setup"], each["seed"]) for each in runs}
    for seed in range(given.seeds):
        for setup in given.setups:
            if (setup, seed) in done or (given.data is None and setup in ("usps", "mnist")):
                continue
            results = run(setup, seed, given.data, given.labels)
            runs += results
            trust.append_results(given.results, results)
    print(table(runs))


if __name__ == "__main__":
    main()
