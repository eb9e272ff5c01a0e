"""The page of several runs: summaries, curves, agreement of the labels and differences of the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ..config.secrets import REDACTED, redact_secrets
from ..version import __version__
from .charts import metric_points, rounds_axis, shorten_names
from .elements import (
    card,
    config_details,
    heading,
    html_document,
    paragraph,
    scrollable,
    table,
    warning_box,
    with_break_points,
)
from .plot import Curve, curve_chart, fit_axis
from .run_data import RunData
from .text import format_bytes, format_duration, format_value, join_words, list_warnings, summary_rows

#: The number of colours of the style sheet; further runs repeat them with dashed lines.
COLOURS = 10
#: Settings that differ between any two runs.
_IGNORED = ("common_args.run_dir", "common_args.run_id")
#: The curves of each run: key of metrics.jsonl, title, explanation.
_CURVES = (
    ("acc", "Accuracy", "Accuracy of the final model on the server's samples."),
    ("train_loss", "Training loss", "Mean loss of the clients' training."),
    ("seconds", "Time", "Computing time up to each round, in seconds."),
    ("bytes", "Messages", "Bytes sent in both directions up to each round."),
)


@dataclass(frozen=True, eq=False)
class NamedRun:
    """The data of a run and its name on the page."""

    name: str
    data: RunData


def multi_run_page(runs: Sequence[NamedRun]) -> str:
    """The HTML page of several runs."""
    datasets = list(dict.fromkeys(run.data.dataset for run in runs))
    title = f"{len(runs)} runs on {join_words(datasets)}"
    warnings = [f"{run.name}: {sentence}" for run in runs for sentence in list_warnings(run.data)]
    sections = [
        f'<p class="eyebrow">mrtf {escape(__version__)} · {len(runs)} runs</p>\n<h1>{escape(title)}</h1>',
        warning_box(warnings),
        _summary_section(runs),
        _curve_section(runs),
        _agreement_section(runs),
        _settings_section(runs),
        *(config_details(f"All settings of {run.name}", run.data.config) for run in runs),
    ]
    return html_document(title, sections)


def shortest_unique_names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that are different.

    >>> shortest_unique_names([Path("a/runs/x"), Path("b/runs/x"), Path("a/runs/y")])
    ['a/runs/x', 'b/runs/x', 'a/runs/y']
    >>> shortest_unique_names([Path("runs/x"), Path("runs/y")])
    ['x', 'y']
    """
    parts = [path.resolve().parts if path.is_absolute() else path.parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{'/'.join(part)} ({number})" for number, part in enumerate(parts, 1)]


def _summary_section(runs: Sequence[NamedRun]) -> str:
    rows = [dict(summary_rows(run.data)) for run in runs]
    for row, run in zip(rows, runs, strict=True):
        row.setdefault("algorithm", run.data.algorithm)
        row.setdefault("completed rounds", str(len(run.data.metrics)))
        row.setdefault("computing time", format_duration(run.data.seconds))
    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[key, *(row.get(key, "") for row in rows)] for key in keys]
    head = ["", *(run.name for run in runs)]
    return f"{heading('Summaries', 'summaries')}\n{card(table(cells, head, 'Summaries of the runs'))}"


def _curve_section(runs: Sequence[NamedRun]) -> str:
    cards: list[str] = []
    for key, title, text in _CURVES:
        points = [_points(run.data.metrics, key) for run in runs]
        if not any(points):
            continue
        drawn = [
            Curve(run.name, path, f"c{index % COLOURS}", dashed=index >= COLOURS, last=_format_last(key, path[-1][1]))
            for index, (run, path) in enumerate(zip(runs, points, strict=True))
            if path
        ]
        y = fit_axis([value for curve in drawn for _, value in curve.points])
        x = rounds_axis([run.data.metrics for run in runs])
        cards.append(card(curve_chart(f"{title} over the rounds", drawn, x, y, tall=not cards), title, text))
    first, rest = "".join(cards[:1]), "".join(cards[1:])
    return f'{heading("Round by round", "rounds")}\n{first}<div class="three">{rest}</div>' if cards else ""


def _points(metrics: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    """The points of a key, or of the cumulative sum of two keys."""
    parts = {"seconds": ("client_seconds", "server_seconds"), "bytes": ("uplink_bytes", "downlink_bytes")}.get(key)
    if parts is None:
        return metric_points([dict(line) for line in metrics], key)
    sums = np.cumsum([sum(line.get(part) or 0 for part in parts) for line in metrics])
    return [(line["round"] + 1, float(total)) for line, total in zip(metrics, sums, strict=True) if sums[-1] > 0]


def _format_last(key: str, value: float) -> str:
    formats: dict[str, Callable[[float], str]] = {
        "acc": lambda value: f"{value:.3f}",
        "seconds": format_duration,
        "bytes": format_bytes,
    }
    return formats.get(key, lambda number: f"{number:.3g}")(value)


def _agreement_section(runs: Sequence[NamedRun]) -> str:
    """The fraction of equal labels of any two runs on the same samples."""
    all_runs = [(run.name, run.data.predictions) for run in runs if run.data.predictions is not None]
    same = [(name, predictions) for name, predictions in all_runs if predictions.ids == all_runs[0][1].ids]
    if len(same) < 2:
        return ""
    names = [with_break_points(name) for name in shorten_names([name for name, _ in same], 24)]
    lines = ["".join(f"<th>{name}</th>" for name in names)]
    for name, (_, predictions) in zip(names, same, strict=True):
        fractions = [float((predictions.labels == other.labels).mean()) for _, other in same]
        cells = "".join(
            f'<td style="background:rgba(var(--shade),{0.75 * value:.2f})">{value:.3f}</td>' for value in fractions
        )
        lines.append(f"<th>{name}</th>{cells}")
    rows = f"<tr><th></th>{lines[0]}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines[1:])
    content = scrollable(f'<table class="confusion runs first">{rows}</table>', "Fractions of equal labels")
    text = "The fraction of the samples with the same label in two runs, without true labels."
    return f"{heading('Agreement of the labels', 'agreement')}\n{paragraph(text)}\n{card(content)}"


def _settings_section(runs: Sequence[NamedRun]) -> str:
    flat = [_flatten(redact_secrets(run.data.config, REDACTED)) for run in runs]
    keys = [key for key in dict.fromkeys(key for config in flat for key in config) if key not in _IGNORED]
    differ = [key for key in keys if len({repr(config.get(key)) for config in flat}) > 1]
    title = heading("Different settings", "settings")
    if not differ:
        return f"{title}\n{paragraph('The settings are the same.')}"
    cells = [[key, *(format_value(config.get(key)) for config in flat)] for key in differ]
    head = ["setting", *(run.name for run in runs)]
    return f"{title}\n{card(table(cells, head, 'Settings that differ'))}"


def _flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in config.items():
        result |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return result
