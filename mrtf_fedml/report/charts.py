"""The charts of one run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .axes import Axis, around
from .facts import Answer, Calibration
from .plot import Curve, Layer, Point, column_chart, curve_chart

Metrics = Sequence[dict[str, Any]]

#: Accuracies that the refinery measures: key of metrics.jsonl, name in the legend, colour.
ACCURACIES = (
    ("acc_aggregated", "plain average", "plain"),
    ("acc_ensemble", "ensemble of teachers", "c2"),
    ("acc_targets", "targets", "c1"),
    ("acc_refined", "refined model", "c0"),
)
#: What the accuracies that an algorithm names itself are drawn in, one after another.
OTHER_COLOURS = ("c3", "c4", "c5", "c7", "c8", "c9")
#: What the answer is drawn in where it is none of these models' alone.
_ANSWER = "c6"
#: Numbers that every round has, or that have a chart of their own.
KNOWN = (
    *("round", "acc", "local_loss", "local_weight", "seconds_local", "seconds_refine", "bytes_up", "bytes_down"),
    "refined_answers",
)
#: Measured numbers whose key does not tell what they are.
NAMES = {
    "refined_share": "How much of the answer is the refined model",
    "epsilon_server": "Privacy budget epsilon, towards the server",
    "epsilon_release": "Privacy budget epsilon, of what is released",
    "estimated_gain": "Gain by refining, as the clients estimate it",
    "estimated_gain_error": "Standard error of that gain",
    "estimated_unweighed": "Accuracy on the clients' own classes, as they estimate it",
    "estimated_unweighed_error": "Standard error of that accuracy",
    "estimated_flattery": "What the clients' own samples flatter a model by, as their witnesses tell",
}


def accuracy_chart(metrics: Metrics, classes: int | None, resumed: Iterable[int] = ()) -> str | None:
    """The accuracies over the rounds, with the rounds in which a run was resumed; None where no round was scored."""
    curves = accuracy_curves(metrics)
    if not curves:
        return None
    x = rounds_axis([metrics])
    if classes is not None:
        curves.append(Curve("guessing", [(x.low, 1 / classes), (x.high, 1 / classes)], "plain", dashed=True))
    # A resume lies between two rounds.
    marks = [(number + 0.5, "resumed") for number in resumed]
    return curve_chart("Accuracy over the rounds", curves, x, Axis(0, 1), tall=True, marks=marks)


def accuracy_curves(metrics: Metrics) -> list[Curve]:
    """A curve for each accuracy that was measured, those that an algorithm names itself included.

    The answer's own accuracy has one where no other is the same.
    """
    known = [key for key, _, _ in ACCURACIES]
    others = [key for key in measured(metrics) if key.startswith("acc_") and key not in known]
    drawn = [*ACCURACIES]
    colours = zip(others, OTHER_COLOURS * len(others), strict=False)
    drawn += [(key, key.removeprefix("acc_").replace("_", " "), colour) for key, colour in colours]
    found = {key: points_of(metrics, key) for key, _, _ in drawn}
    answer = points_of(metrics, "acc")
    curves = [
        Curve(name, found[key], colour, last=f"{found[key][-1][1]:.2f}") for key, name, colour in drawn if found[key]
    ]
    if answer and answer not in found.values():
        curves.append(Curve("the model that answers", answer, _ANSWER, last=f"{answer[-1][1]:.2f}"))
    return curves


def loss_chart(metrics: Metrics) -> str | None:
    """The clients' mean loss and u_t over the rounds; None where no client reported a loss."""
    loss, weight = points_of(metrics, "local_loss"), points_of(metrics, "local_weight")
    if not loss:
        return None
    curves = [Curve("local loss", loss, "c0", last=f"{loss[-1][1]:.3g}")]
    if weight:
        curves.append(Curve("u_t, weight of the local teachers", weight, "c2", last=f"{weight[-1][1]:.2f}"))
    y = around([0.0, *(value for curve in curves for _, value in curve.points)])
    return curve_chart("Local loss over the rounds", curves, rounds_axis([metrics]), y)


def seconds_chart(metrics: Metrics) -> str | None:
    """Where the time of each round went, stacked; None before the first round."""
    if not metrics:
        return None
    local = [float(line.get("seconds_local") or 0) for line in metrics]
    refine = [float(line.get("seconds_refine") or 0) for line in metrics]
    first = metrics[0]["round"] + 0.5
    edges = [first + number for number in range(len(metrics) + 1)]
    layers = [Layer("clients train", local, "plain"), Layer("server refines", refine, "c0")]
    y = around([0.0, *map(sum, zip(local, refine, strict=True))], "seconds")
    return column_chart("Seconds per round", edges, layers, rounds_axis([metrics]), y)


def measured_charts(metrics: Metrics) -> list[tuple[str, str]]:
    """What the algorithm measured beside accuracies: (name, chart) for each number."""
    x = rounds_axis([metrics])
    charts = []
    for key in measured(metrics):
        if key in KNOWN or key.startswith("acc_"):
            continue
        points = points_of(metrics, key)
        name = NAMES.get(key, key.replace("_", " "))
        y = around([value for _, value in points])
        charts.append((name, curve_chart(f"{name} over the rounds", [Curve(name, points)], x, y)))
    return charts


def confidence_chart(answer: Answer) -> str:
    """How sure the model is of its answers."""
    return share_chart("Confidence of the answers", answer.confidences, "confidence")


def share_chart(title: str, shares: np.ndarray, label: str) -> str:
    """How many samples have which share, from 0 to 1."""
    counts, edges = np.histogram(shares, bins=20, range=(0, 1))
    y = around([0, max(1, int(counts.max()))], "samples")
    return column_chart(title, edges.tolist(), [Layer("samples", counts.tolist())], Axis(0, 1, label), y)


def calibration_chart(calibration: Calibration) -> str:
    """The share that is right of the answers of each confidence, beside what a calibrated model would have."""
    edges = np.linspace(0, 1, len(calibration.samples) + 1).tolist()
    layer = Layer("right", np.nan_to_num(calibration.accuracy).tolist())
    ideal = Curve("calibrated", [(0, 0), (1, 1)], "c2", dashed=True)
    title = "Share of right answers by confidence"
    return column_chart(title, edges, [layer], Axis(0, 1, "confidence"), Axis(0, 1, "right"), over=[ideal])


def measured(metrics: Metrics) -> list[str]:
    """The keys under which some round has a number, in the order in which they first appear."""
    return list(dict.fromkeys(key for line in metrics for key, value in line.items() if is_number(value)))


def points_of(metrics: Metrics, key: str) -> list[Point]:
    """(round from 1, value) of each round that has a number under `key`."""
    return [(line["round"] + 1, float(line[key])) for line in metrics if is_number(line.get(key))]


def is_number(value: Any) -> bool:
    """Whether a value can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def rounds_axis(runs: Sequence[Metrics]) -> Axis:
    """From the first round of any run to the last of any."""
    first = min((metrics[0]["round"] for metrics in runs if metrics), default=0)
    last = max((metrics[-1]["round"] for metrics in runs if metrics), default=0)
    return Axis(first + 0.5, last + 1.5, "round", integer=True)
