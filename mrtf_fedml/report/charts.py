"""The charts and tables of one run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from .elements import scrollable
from .plot import Axis, Curve, Layer, Point, column_chart, curve_chart, dot_path, fit_axis
from .run_data import Calibration, ClientCounts, Predictions

Metrics = Sequence[dict[str, Any]]

#: Accuracies of one round: key of metrics.jsonl, name in the legend, colour.
ACCURACIES = (
    ("acc_aggregated", "aggregated model", "plain"),
    ("acc_ensemble", "ensemble of teachers", "c2"),
    ("acc_targets", "targets", "c1"),
    ("acc_refined", "refined model", "c0"),
)
#: Colours of other accuracies that an algorithm reports.
OTHER_COLOURS = ("c3", "c4", "c5", "c7", "c8", "c9")
#: The colour of the final model if it is none of these.
_FINAL_COLOUR = "c6"
#: The standard error of a metric is a metric of its name with this suffix.
_STDERR = "_stderr"
#: Metrics of every round, which have a chart or a table of their own.
OWN_CHARTS = ("round", "acc", "train_loss", "client_seconds", "server_seconds", "uplink_bytes", "downlink_bytes")


def accuracy_chart(metrics: Metrics, classes: int | None, resumes: Iterable[int] = ()) -> str | None:
    """The accuracies over the rounds, with marks at resumes; None if no round was scored."""
    curves = accuracy_curves(metrics)
    if not curves:
        return None
    x = rounds_axis([metrics])
    if classes is not None:
        curves.append(Curve("guessing", [(x.low, 1 / classes), (x.high, 1 / classes)], "plain", dashed=True))
    # A resume is between two rounds.
    marks = [(number + 0.5, "resumed") for number in resumes]
    return curve_chart("Accuracy over the rounds", curves, x, Axis(0, 1), tall=True, marks=marks)


def accuracy_curves(metrics: Metrics) -> list[Curve]:
    """One curve per accuracy in the metrics, and one of the final model if no other curve is equal to it."""
    known = [key for key, _, _ in ACCURACIES]
    others = [key for key in metric_keys(metrics) if key.startswith("acc_") and key not in known]
    drawn = [*ACCURACIES]
    colours = zip(others, OTHER_COLOURS * len(others), strict=False)
    drawn += [(key, key.removeprefix("acc_").replace("_", " "), colour) for key, colour in colours]
    points = {key: metric_points(metrics, key) for key, _, _ in drawn}
    final = metric_points(metrics, "acc")
    curves = [
        Curve(name, points[key], colour, last=f"{points[key][-1][1]:.2f}") for key, name, colour in drawn if points[key]
    ]
    if final and final not in points.values():
        curves.append(Curve("final model", final, _FINAL_COLOUR, last=f"{final[-1][1]:.2f}"))
    return curves


def loss_chart(metrics: Metrics) -> str | None:
    """The clients' mean loss over the rounds; None if no client reported a loss."""
    loss = metric_points(metrics, "train_loss")
    if not loss:
        return None
    y = fit_axis([0.0, *(value for _, value in loss)])
    return curve_chart("Training loss over the rounds", [Curve("training loss", loss)], rounds_axis([metrics]), y)


def seconds_chart(metrics: Metrics) -> str | None:
    """The seconds of clients and server in each round, stacked; None before the first round."""
    if not metrics:
        return None
    clients = [float(line.get("client_seconds") or 0) for line in metrics]
    server = [float(line.get("server_seconds") or 0) for line in metrics]
    first = metrics[0]["round"] + 0.5
    edges = [first + number for number in range(len(metrics) + 1)]
    layers = [Layer("clients", clients, "plain"), Layer("server", server, "c0")]
    y = fit_axis([0.0, *map(sum, zip(clients, server, strict=True))], "seconds")
    return column_chart("Seconds per round", edges, layers, rounds_axis([metrics]), y)


def metric_charts(metrics: Metrics, labels: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """One chart per metric of the algorithm other than accuracies, as (title, explanation, chart).

    A metric's standard error, under its key with `_stderr`, is a band of its chart. `labels` has titles by key.
    """
    x, keys = rounds_axis([metrics]), metric_keys(metrics)
    charts = []
    for key in keys:
        is_stderr = key.endswith(_STDERR) and key.removesuffix(_STDERR) in keys
        if key in OWN_CHARTS or key.startswith("acc_") or is_stderr:
            continue
        points, errors = metric_points(metrics, key), dict(metric_points(metrics, key + _STDERR))
        name = labels.get(key, key.replace("_", " "))
        band = _band(points, errors) if errors else []
        y = fit_axis([value for _, value in points] + [value for pair in band for value in pair])
        chart = curve_chart(f"{name} over the rounds", [Curve(name, points, band=band)], x, y)
        charts.append((name[:1].upper() + name[1:], "Band: one standard error on each side." if errors else "", chart))
    return charts


def _band(points: Sequence[Point], errors: Mapping[float, float]) -> list[Point]:
    """(value - error, value + error) of each point; fractions stay within [0, 1] and their differences in [-1, 1]."""
    values = [value for _, value in points]
    low = 0.0 if min(values) >= 0 else -1.0
    is_fraction = min(values) >= -1 and max(values) <= 1
    pairs = [(value - errors.get(index, 0.0), value + errors.get(index, 0.0)) for index, value in points]
    return [(max(low, lower), min(1.0, upper)) for lower, upper in pairs] if is_fraction else pairs


def confidence_chart(predictions: Predictions) -> str:
    """The distribution of the confidences."""
    return fraction_histogram("Confidence of the predictions", predictions.confidences, "confidence")


def fraction_histogram(title: str, fractions: np.ndarray, label: str) -> str:
    """A histogram of fractions from 0 to 1, one per sample."""
    counts, edges = np.histogram(fractions, bins=20, range=(0, 1))
    y = fit_axis([0, max(1, int(counts.max()))], "samples")
    return column_chart(title, edges.tolist(), [Layer("samples", counts.tolist())], Axis(0, 1, label), y)


def calibration_chart(calibration: Calibration) -> str:
    """The accuracy of the predictions by confidence, with the line of a calibrated model."""
    edges = np.linspace(0, 1, len(calibration.samples) + 1).tolist()
    layer = Layer("accuracy", np.nan_to_num(calibration.accuracy).tolist())
    ideal = Curve("calibrated", [(0, 0), (1, 1)], "c2", dashed=True)
    title = "Accuracy by confidence"
    return column_chart(title, edges, [layer], Axis(0, 1, "confidence"), Axis(0, 1, "accuracy"), over=[ideal])


def metric_keys(metrics: Metrics) -> list[str]:
    """The keys with a number in some round, in the order of their first appearance."""
    return list(dict.fromkeys(key for line in metrics for key, value in line.items() if is_number(value)))


def metric_points(metrics: Metrics, key: str) -> list[Point]:
    """(round from 1, value) of each round with a number under `key`."""
    return [(line["round"] + 1, float(line[key])) for line in metrics if is_number(line.get(key))]


def is_number(value: Any) -> bool:
    """Whether the value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def rounds_axis(runs: Sequence[Metrics]) -> Axis:
    """The axis from the first round of any run to the last round of any run."""
    first = min((metrics[0]["round"] for metrics in runs if metrics), default=0)
    last = max((metrics[-1]["round"] for metrics in runs if metrics), default=0)
    return Axis(first + 0.5, last + 1.5, "round", integer=True)


#: More bars than this are drawn as columns without names; bars with names are in a collapsed list below.
MAX_BARS = 30


def class_bars(title: str, names: Sequence[str], values: Sequence[float], texts: Sequence[str], top: float) -> str:
    """Horizontal bars from 0 to `top`, each with its text; NaN has no bar."""
    heights = np.nan_to_num(np.asarray(values, dtype=float))
    rows = [
        f'<span title="{escape(name)}">{escape(" ".join(name.split()))}</span>'
        f'<div><i style="width:{100 * height / top:.1f}%"></i></div><b>{escape(text)}</b>'
        for name, height, text in zip(names, heights.tolist(), texts, strict=True)
    ]
    if len(rows) <= MAX_BARS:
        return f'<div class="rows">{"".join(rows)}</div>'
    edges = [number - 0.5 for number in range(len(rows) + 1)]
    y = Axis(0, 1) if top == 1 else fit_axis([0, top])
    columns = column_chart(
        title, edges, [Layer(title, heights.tolist())], Axis(-0.5, len(rows) - 0.5, "class", integer=True), y
    )
    details = "".join(f"<p>{row}</p>" for row in rows)
    return f'{columns}<details><summary>By name</summary><div class="rows many">{details}</div></details>'


def shorten_names(names: Sequence[str], limit: int) -> list[str]:
    """Each name on one line of at most `limit` characters; names with the same start keep their ends too.

    >>> shorten_names(["aquarium fish and others", "bear"], 12)
    ['aquarium fi…', 'bear']
    >>> shorten_names(["letter of class 10", "letter of class 11"], 12)
    ['letter…ss 10', 'letter…ss 11']
    """
    lines = [" ".join(name.split()) for name in names]
    starts = Counter(line[: limit - 1] for line in lines)
    end = (limit - 1) // 2
    return [
        line
        if len(line) <= limit
        else f"{line[: limit - 1]}…"
        if starts[line[: limit - 1]] == 1
        else f"{line[: limit - 1 - end]}…{line[-end:]}"
        for line in lines
    ]


#: For more classes, the most frequent mistakes replace the matrix.
MAX_MATRIX_CLASSES = 20
MAX_MISTAKES = 20


def confusion_table(names: Sequence[str], confusion: npt.NDArray[np.int64]) -> str:
    """The matrix [C, C] as an HTML table, or the most frequent mistakes for large C."""
    return _confusion_matrix(names, confusion) if len(names) <= MAX_MATRIX_CLASSES else _mistake_table(names, confusion)


def _confusion_matrix(names: Sequence[str], confusion: npt.NDArray[np.int64]) -> str:
    short = [escape(name) for name in shorten_names(names, 14)]
    fractions = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    head = "".join(f"<th>{name}</th>" for name in short)
    rows = [
        f"<tr><th>{name}</th>"
        + "".join(
            f"<td{' class=right' if row == column else ''} "
            f'style="background:rgba(var(--shade),{0.75 * fractions[row, column]:.2f})">'
            f"{confusion[row, column] or ''}</td>"
            for column in range(len(names))
        )
        + "</tr>"
        for row, name in enumerate(short)
    ]
    return "<h3>Confusion</h3><p class='faint'>Rows are true classes, columns predicted classes.</p>" + scrollable(
        f'<table class="confusion first"><tr><th></th>{head}</tr>{"".join(rows)}</table>', "Confusion matrix"
    )


def _mistake_table(names: Sequence[str], confusion: npt.NDArray[np.int64]) -> str:
    wrong = confusion.copy()
    np.fill_diagonal(wrong, 0)
    worst = [
        np.unravel_index(cell, wrong.shape) for cell in np.argsort(-wrong, axis=None, kind="stable")[:MAX_MISTAKES]
    ]
    true = confusion.sum(axis=1)
    rows = "".join(
        f"<tr><td>{escape(names[row])}</td><td>{escape(names[column])}</td>"
        f'<td class="number">{wrong[row, column]}</td>'
        f'<td class="number">{wrong[row, column] / true[row]:.3f}</td></tr>'
        for row, column in worst
        if wrong[row, column]
    )
    return "<h3>Most frequent mistakes</h3>" + scrollable(
        '<table class="columns prose"><tr><th>true class</th><th>predicted class</th><th class="number">samples</th>'
        f'<th class="number">of the class</th></tr>{rows}</table>',
        "Most frequent mistakes",
    )


#: Clients per block, and the maximum number of clients, which are evenly spaced.
BLOCK, MAX_CLIENTS = 20, 100
#: The number of bubble sizes; each is one path of the SVG.
LEVELS = 8
#: Pixels of a cell for few and for many classes, of a letter, and of the axis below the cells.
_LARGE_CELL, _SMALL_CELL, _LETTER_WIDTH, _AXIS_HEIGHT = 13, 8, 6.2, 18
#: Up to this many classes have large cells and a name each.
_MAX_LARGE_CELLS = 24


def drawn_clients(client_counts: ClientCounts) -> list[int]:
    """The clients that are drawn."""
    total = len(client_counts.counts)
    return np.unique(np.linspace(0, total - 1, min(total, MAX_CLIENTS)).round().astype(int)).tolist()


def client_counts_chart(client_counts: ClientCounts) -> str:
    """Bubbles of the numbers of samples per client and class, in blocks of clients that the page arranges."""
    clients = drawn_clients(client_counts)
    names = shorten_names(client_counts.class_names, 9)
    blocks = [
        _client_block(client_counts.counts, clients[start : start + BLOCK], names)
        for start in range(0, len(clients), BLOCK)
    ]
    # The columns of the page are as wide as the widest block.
    widest = max(width for width, _ in blocks)
    return f'<div class="blocks" style="--block:{widest}px">{"".join(block for _, block in blocks)}</div>'


def _client_block(counts: np.ndarray, clients: list[int], names: list[str]) -> tuple[int, str]:
    """The width of a block in pixels, and its SVG."""
    cell = _LARGE_CELL if len(names) <= _MAX_LARGE_CELLS else _SMALL_CELL
    step = 1 if len(names) <= _MAX_LARGE_CELLS else 5
    labelled = list(enumerate(names))[::step]
    left = round(max(len(name) for _, name in labelled) * _LETTER_WIDTH) + 8
    right, bottom = left + cell * len(clients), cell * len(names)
    lines = "".join(f"M{left} {cell * row + cell // 2}H{right}" for row in range(len(names)))
    texts = [
        f'<text x="{left - 6}" y="{cell * row + cell // 2 + 4}" text-anchor="end">{escape(name)}</text>'
        for row, name in labelled
    ]
    texts += [
        f'<text x="{left + cell * column + cell // 2}" y="{bottom + 14}" text-anchor="middle">{client}</text>'
        for column, client in enumerate(clients)
        if column % 5 == 0
    ]
    block_counts = counts[clients]
    # The area is proportional to the number, so the diameter to its square root.
    levels = np.ceil(LEVELS * np.sqrt(block_counts / max(1, counts.max()))).astype(int)
    bubbles = ""
    for level in range(1, LEVELS + 1):
        places = [(left + cell * k + cell // 2, cell * c + cell // 2) for k, c in np.argwhere(levels == level).tolist()]
        if places:
            width, opacity = max(1.5, level / LEVELS * cell), 0.4 + 0.6 * level / LEVELS
            bubbles += f'<path d="{dot_path(places)}" stroke-width="{width:.1f}" opacity="{opacity:.2f}"/>'
    title = f"Samples of clients {clients[0]} to {clients[-1]} by class"
    width, height = right + 8, bottom + _AXIS_HEIGHT
    return width, (
        f'<svg role="img" aria-label="{title}" viewBox="0 0 {width} {height}">'
        f'<path class="grid" d="{lines}"/>{bubbles}{"".join(texts)}</svg>'
    )
