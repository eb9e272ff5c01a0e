"""What `authors_program.py` wrote, as tables: the curves' differences with their standard errors, and CPU seconds.

    python benchmarks/authors_figures.py rounds.jsonl

A pair is one seed and one draw, run by both. *Apart* counts the windows of five rounds in which the mean difference
over the pairs is larger than two of its standard errors. The same is said of draw 0 and draw 1 of one side, which
differ by chance alone.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from checkouts import format_spread

Array = npt.NDArray[np.float64]
Curves = dict[tuple[int, int], list[dict[str, Any]]]

QUANTITIES = {
    "the plain average": "acc_aggregated",
    "the ensemble": "acc_ensemble",
    "the targets": "acc_targets",
    "the refined model": "acc_refined",
    "the clients' loss": "loss",
}
WINDOW = 5


def curves(file: Path) -> Curves:
    """The rounds of each pair, by seed and draw."""
    pairs: Curves = defaultdict(list)
    for line in file.read_text().splitlines():
        entry = json.loads(line)
        pairs[entry["seed"], entry["draw"]].append(entry)
    return pairs


def apart(differences: Array) -> tuple[float, float, str]:
    """Of [pairs, rounds]: the mean over all, its standard error over the pairs, and the windows beyond two of these."""

    def error(of_pairs: Array) -> Array:
        if len(of_pairs) < 2:
            return np.full(of_pairs.shape[1:], np.nan)
        return np.asarray(of_pairs.std(axis=0, ddof=1) / np.sqrt(len(of_pairs)))

    length = min(WINDOW, differences.shape[1])
    windows = np.lib.stride_tricks.sliding_window_view(differences, length, axis=1).mean(axis=2)
    beyond = np.abs(windows.mean(axis=0)) > 2 * error(windows)
    by_pair = differences.mean(axis=1)
    return float(by_pair.mean()), float(error(by_pair)), f"{beyond.sum()} of {len(beyond)}"


def compared(pairs: Curves) -> None:
    """The table of the curves."""
    twice = sorted({seed for seed, _ in pairs if {(seed, 0), (seed, 1)} <= set(pairs)})

    def of(side: str, key: str, draw: int | None = None) -> Array:
        chosen = list(pairs) if draw is None else [(seed, draw) for seed in twice]
        return np.array([[line[side][key] for line in pairs[pair]] for pair in chosen])

    last = min(10, len(next(iter(pairs.values()))))
    print(f"\n{len(pairs)} pairs; mean over rounds / last {last}\n")
    print("| | theirs | ours | ours less theirs | apart | last |")
    print("|---|---|---|---|---|---|")
    for name, key in QUANTITIES.items():
        theirs, ours = of("theirs", key), of("ours", key)
        levels = " | ".join(f"{curve.mean():.3f} / {curve[:, -last:].mean():.3f}" for curve in (theirs, ours))
        mean, error, windows = apart(ours - theirs)
        late, late_error, _ = apart((ours - theirs)[:, -last:])
        print(f"| {name} | {levels} | {mean:+.4f} ± {error:.4f} | {windows} | {late:+.4f} ± {late_error:.4f} |")
    largest = max(line.get("targets_apart", np.nan) for rounds in pairs.values() for line in rounds)
    print(f"\nthe largest difference of a target: {largest:.2g}")
    if len(twice) < 2:
        return
    print("\n| draw 0 less draw 1 | theirs | apart | ours | apart |")
    print("|---|---|---|---|---|")
    for name, key in QUANTITIES.items():
        cells = []
        for side in ("theirs", "ours"):
            mean, error, windows = apart(of(side, key, 0) - of(side, key, 1))
            cells.append(f"{mean:+.4f} ± {error:.4f} | {windows}")
        print(f"| {name} | {' | '.join(cells)} |")


def taken(pairs: Curves) -> None:
    """The table of CPU seconds, without each run's first round."""
    lines = [line for rounds in pairs.values() for line in rounds[1:]]
    if not lines:
        return
    print(f"\n{len(lines)} rounds by turns, without each run's first\n")
    print("| CPU seconds | theirs | ours | theirs / ours |")
    print("|---|---|---|---|")
    for part in ("whole", "local", "teachers", "distilling", "rest"):
        theirs, ours = ([line[side]["seconds"][part] for line in lines] for side in ("theirs", "ours"))
        ratios = [one / other for one, other in zip(theirs, ours, strict=True)]
        print(f"| {part} | {format_spread(theirs)} | {format_spread(ours)} | {format_spread(ratios)} |")
    testing = [line["theirs"]["seconds"].get("testing", 0.0) for line in lines]
    print(f"| of their rest: testing | {format_spread(testing)} | | |")


if __name__ == "__main__":
    for given in sys.argv[1:]:
        print(f"\n## {given}")
        read = curves(Path(given))
        compared(read)
        taken(read)
