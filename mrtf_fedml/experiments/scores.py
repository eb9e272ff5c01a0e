"""The scores of a comparison: one line per algorithm, over its seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UserError
from .plan import Trial

Metrics = list[dict[str, Any]]

#: Number of scored rounds at the end of a run that are averaged: a single round is noisy.
LAST_ROUNDS = 10
#: Number of scored rounds of a window in which two curves are compared.
WINDOW_ROUNDS = 5
#: A mean difference of more standard errors than this counts as more than noise.
NOISE_STANDARD_ERRORS = 2.0
#: Accuracies that differ by less are equal: the difference is rounding of the sums.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class MeanStd:
    """A mean over seeds and the sample standard deviation, which is None with one seed."""

    mean: float
    std: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> MeanStd:
        """From one value per seed.

        >>> MeanStd.of([0.25, 0.25])
        MeanStd(mean=0.25, std=0.0)
        """
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class AlgorithmScore:
    """The accuracies of one algorithm, at the best point of the grid where there is one.

    Attributes:
        label: the algorithm.
        point: the point of the grid, empty without a grid.
        seeds: number of seeds.
        final: accuracy after the last round.
        best: highest accuracy of any round.
        mean: mean accuracy over all scored rounds.
        last: mean accuracy over the last ten scored rounds, or over all where there are fewer.
        rounds_to_target: over the seeds that reached the target; None where no seed did.
        seeds_reached: number of seeds that reached the target.
        curve: for each scored round its number from 1 and the accuracy over the seeds.
        accuracies: one list per seed, in the order of the seeds.
    """

    label: str
    point: str
    seeds: int
    final: MeanStd
    best: MeanStd
    mean: MeanStd
    last: MeanStd
    rounds_to_target: MeanStd | None
    seeds_reached: int
    curve: list[tuple[int, MeanStd]]
    accuracies: list[list[float]]


def score_trials(
    trials: Sequence[Trial], read: Callable[[Trial], Metrics], target: float | None
) -> list[AlgorithmScore]:
    """One score per label, in the order of the trials; of a grid, the point with the best mean final accuracy.

    A run with fewer rounds than others, such as FedRidge's, which ends by itself, keeps its last accuracy.
    """
    paths = [_scored_rounds(read(trial)) for trial in trials]
    rounds = [number for number, _ in max(paths, key=len)]
    extended = [path + [(number, path[-1][1]) for number in rounds if number > path[-1][0]] for path in paths]
    rows = []
    for label in dict.fromkeys(trial.label for trial in trials):
        of_label = [(trial.point, path) for trial, path in zip(trials, extended, strict=True) if trial.label == label]
        points = [
            _score(label, point, [path for other, path in of_label if other == point], target)
            for point in dict.fromkeys(point for point, _ in of_label)
        ]
        rows.append(max(points, key=lambda row: row.final.mean))
    return rows


@dataclass(frozen=True)
class WindowCount:
    """The number of windows of five consecutive scored rounds in which one algorithm is below another.

    Attributes:
        windows: number of windows; fewer than five scored rounds are one window.
        below: windows in which the mean over the seeds is lower.
        beyond_noise: windows in which it is lower by more than two standard errors, sd / sqrt(seeds), of the
            differences per seed. None with one seed, which has no standard error.
    """

    windows: int
    below: int
    beyond_noise: int | None


def count_windows_below(row: AlgorithmScore, other: AlgorithmScore) -> WindowCount:
    """Compare seed by seed: two runs of one seed have the same split, initial weights and clients per round."""
    seeds = [
        _window_means([a - b for a, b in zip(own, reference, strict=True)])
        for own, reference in zip(row.accuracies, other.accuracies, strict=True)
    ]
    gaps = [MeanStd.of(window) for window in zip(*seeds, strict=True)]
    below = [gap for gap in gaps if gap.mean < -_ROUNDING]
    beyond = [gap for gap in below if gap.mean < -NOISE_STANDARD_ERRORS * (gap.std or 0.0) / math.sqrt(len(seeds))]
    return WindowCount(len(gaps), len(below), len(beyond) if len(seeds) > 1 else None)


def _window_means(values: Sequence[float]) -> list[float]:
    """The means of five consecutive values each, or of all where there are fewer.

    >>> _window_means([0.0, 0.0, 0.0, 0.0, 5.0, 10.0])
    [1.0, 3.0]
    """
    return [
        statistics.fmean(values[start : start + WINDOW_ROUNDS])
        for start in range(max(1, len(values) - WINDOW_ROUNDS + 1))
    ]


def _scored_rounds(metrics: Metrics) -> list[tuple[int, float]]:
    """The number, from 1, and the accuracy of each round that has one."""
    path = [(line["round"] + 1, line["acc"]) for line in metrics if line.get("acc") is not None]
    if not path:
        raise UserError("a comparison needs accuracies, but the server's set has no labels; give it some (y_test)")
    return path


def _score(label: str, point: str, paths: Sequence[list[tuple[int, float]]], target: float | None) -> AlgorithmScore:
    accuracies = [[accuracy for _, accuracy in path] for path in paths]
    firsts = [_first_round(path, target) for path in paths] if target is not None else []
    reached = [float(first) for first in firsts if first is not None]
    return AlgorithmScore(
        label,
        point,
        len(paths),
        final=MeanStd.of([path[-1] for path in accuracies]),
        best=MeanStd.of([max(path) for path in accuracies]),
        mean=MeanStd.of([statistics.fmean(path) for path in accuracies]),
        last=MeanStd.of([statistics.fmean(path[-LAST_ROUNDS:]) for path in accuracies]),
        rounds_to_target=MeanStd.of(reached) if reached else None,
        seeds_reached=len(reached),
        curve=[(steps[0][0], MeanStd.of([accuracy for _, accuracy in steps])) for steps in zip(*paths, strict=True)],
        accuracies=accuracies,
    )


def _first_round(path: Sequence[tuple[int, float]], target: float) -> int | None:
    """The number, from 1, of the first scored round that reaches the target.

    >>> _first_round([(1, 0.3), (2, 0.8), (3, 0.7)], 0.75)
    2
    """
    return next((number for number, accuracy in path if accuracy >= target), None)
