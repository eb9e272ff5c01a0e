"""What the runs of a comparison show, in numbers: one line per algorithm, over its seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UserError
from .plan import Trial

Metrics = list[dict[str, Any]]

#: The scored rounds at the end of a run whose mean tells where it has settled: one round alone is noisy.
LAST = 10
#: The scored rounds of a window in which two curves are compared.
WINDOW = 5
#: How many of its standard errors a mean difference must lie from zero to be called more than noise.
BEYOND_NOISE = 2.0
#: Accuracies that differ by less are the same: it is what adding them up leaves.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Spread:
    """A mean over seeds, and the sample standard deviation; None with one seed."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of one value per seed.

        >>> Spread.of([0.25, 0.25])
        Spread(mean=0.25, deviation=0.0)
        """
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class Row:
    """What one algorithm reached, in the best point of the grid where there is one.

    Attributes:
        label: the algorithm.
        point: the grid's point, empty without a grid.
        seeds: how many.
        final: accuracy after the last round.
        best: the highest of any round.
        mean: over all rounds that were scored.
        last: over the last ten of them, or over all where there are fewer.
        rounds: that were needed to reach the target, over the seeds that reached it; None where no seed did.
        reached: how many seeds did.
        curve: of each scored round its number from 1, and the accuracy over the seeds.
        paths: each seed's own accuracies, in the order of the seeds.
    """

    label: str
    point: str
    seeds: int
    final: Spread
    best: Spread
    mean: Spread
    last: Spread
    rounds: Spread | None
    reached: int
    curve: list[tuple[int, Spread]]
    paths: list[list[float]]


def rows_of(trials: Sequence[Trial], read: Callable[[Trial], Metrics], target: float | None) -> list[Row]:
    """A row for each label, in the order of the trials; of a grid the point with the best mean final accuracy."""
    rows = []
    for label in dict.fromkeys(trial.label for trial in trials):
        own = [trial for trial in trials if trial.label == label]
        points = [
            _row(label, point, [read(trial) for trial in own if trial.point == point], target)
            for point in dict.fromkeys(trial.point for trial in own)
        ]
        rows.append(max(points, key=lambda row: row.final.mean))
    return rows


@dataclass(frozen=True)
class Below:
    """In how many windows of five consecutive scored rounds one algorithm lies below another.

    Attributes:
        windows: how many there are; where fewer rounds were scored, they are one window.
        below: in how many the mean over the seeds lies below.
        beyond_noise: in how many by more than two standard errors of the seeds' differences, sd / sqrt(seeds): all of
            `below` where the seeds differ alike. None with one seed, which knows no noise.
    """

    windows: int
    below: int
    beyond_noise: int | None


def windows_below(row: Row, other: Row) -> Below:
    """`row` against `other`: a seed's difference is that of its two runs, which share split, weights and clients."""
    seeds = [
        _windows([own - its for own, its in zip(mine, theirs, strict=True)])
        for mine, theirs in zip(row.paths, other.paths, strict=True)
    ]
    gaps = [Spread.of(window) for window in zip(*seeds, strict=True)]
    below = [gap for gap in gaps if gap.mean < -_ROUNDING]
    beyond = [gap for gap in below if gap.mean < -BEYOND_NOISE * (gap.deviation or 0.0) / math.sqrt(len(seeds))]
    return Below(len(gaps), len(below), len(beyond) if len(seeds) > 1 else None)


def _windows(values: Sequence[float]) -> list[float]:
    """The mean of each five consecutive values, or of all where there are fewer.

    >>> _windows([0.0, 0.0, 0.0, 0.0, 5.0, 10.0])
    [1.0, 3.0]
    """
    return [statistics.fmean(values[start : start + WINDOW]) for start in range(max(1, len(values) - WINDOW + 1))]


def _row(label: str, point: str, runs: Sequence[Metrics], target: float | None) -> Row:
    paths = [[(line["round"] + 1, line["acc"]) for line in metrics if line.get("acc") is not None] for metrics in runs]
    if not all(paths):
        raise UserError("a comparison needs accuracies, but the server's set has no labels; give it some (y_test)")
    accuracies = [[accuracy for _, accuracy in path] for path in paths]
    firsts = [_first(path, target) for path in paths] if target is not None else []
    reached = [float(first) for first in firsts if first is not None]
    return Row(
        label,
        point,
        len(runs),
        final=Spread.of([path[-1] for path in accuracies]),
        best=Spread.of([max(path) for path in accuracies]),
        mean=Spread.of([statistics.fmean(path) for path in accuracies]),
        last=Spread.of([statistics.fmean(path[-LAST:]) for path in accuracies]),
        rounds=Spread.of(reached) if reached else None,
        reached=len(reached),
        curve=[(steps[0][0], Spread.of([accuracy for _, accuracy in steps])) for steps in zip(*paths, strict=True)],
        paths=accuracies,
    )


def _first(path: Sequence[tuple[int, float]], target: float) -> int | None:
    """The number, from 1, of the first scored round whose accuracy is the target or more.

    >>> _first([(1, 0.3), (2, 0.8), (3, 0.7)], 0.75)
    2
    """
    return next((number for number, accuracy in path if accuracy >= target), None)
