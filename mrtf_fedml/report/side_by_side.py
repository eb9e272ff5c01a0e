"""Several runs on one page: their curves together, their summaries, what differs in their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ..settings.secrets import HIDDEN, without_secrets
from ..version import __version__
from .axes import around
from .charts import points_of, rounds_axis
from .classes import shortened
from .document import breakable, card, document, faint, heading, scrolling, settings, table, warned
from .events import listed, warnings_of
from .facts import Facts
from .plot import Curve, curve_chart
from .story import duration, size, summary_rows

#: Colours of the style sheet; more runs than these repeat them, dotted.
COLOURS = 10
#: Settings that differ between any two runs and explain nothing.
_OWN = ("common_args.run_dir", "common_args.run_id")
#: What is drawn of each run: key of metrics.jsonl, title, what it is.
_CURVES = (
    ("acc", "Accuracy", "Share of the server's samples that the model that answers has right."),
    ("local_loss", "Local loss", "Mean loss of the clients' training."),
    ("seconds", "Time", "Seconds of computing up to each round."),
    ("bytes", "Messages", "Bytes sent, both ways, up to each round."),
)


@dataclass(frozen=True, eq=False)
class Run:
    """A run and the name that it goes by on the page."""

    name: str
    facts: Facts


def side_by_side(runs: Sequence[Run]) -> str:
    """The page."""
    datasets = list(dict.fromkeys(run.facts.dataset for run in runs))
    title = f"{len(runs)} runs on {listed(datasets)}, side by side"
    warnings = [f"{run.name}: {sentence}" for run in runs for sentence in warnings_of(run.facts)]
    sections = [
        f'<p class="eyebrow">mrtf {escape(__version__)} · {len(runs)} runs</p>\n<h1>{escape(title)}</h1>',
        warned(warnings),
        _summaries(runs),
        _curves(runs),
        _agreement(runs),
        _differences(runs),
        *(settings(f"All settings of {run.name}", run.facts.config) for run in runs),
    ]
    return document(title, sections)


def names_of(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart.

    >>> names_of([Path("a/runs/x"), Path("b/runs/x"), Path("a/runs/y")])
    ['a/runs/x', 'b/runs/x', 'a/runs/y']
    >>> names_of([Path("runs/x"), Path("runs/y")])
    ['x', 'y']
    """
    parts = [path.resolve().parts if path.is_absolute() else path.parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{'/'.join(part)} ({number})" for number, part in enumerate(parts, 1)]


def _summaries(runs: Sequence[Run]) -> str:
    rows = [dict(summary_rows(run.facts)) for run in runs]
    for row, run in zip(rows, runs, strict=True):
        row.setdefault("algorithm", run.facts.algorithm)
        row.setdefault("rounds done", str(len(run.facts.metrics)))
        row.setdefault("time spent computing", duration(run.facts.seconds))
    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[key, *(row.get(key, "") for row in rows)] for key in keys]
    head = ["", *(run.name for run in runs)]
    return f"{heading('Summaries', 'summaries')}\n{card(table(cells, head, 'Summaries of the runs'))}"


def _curves(runs: Sequence[Run]) -> str:
    cards: list[str] = []
    for key, title, note in _CURVES:
        points = [_points(run.facts.metrics, key) for run in runs]
        if not any(points):
            continue
        drawn = [
            Curve(run.name, path, f"c{place % COLOURS}", dashed=place >= COLOURS, last=_last(key, path[-1][1]))
            for place, (run, path) in enumerate(zip(runs, points, strict=True))
            if path
        ]
        y = around([value for curve in drawn for _, value in curve.points])
        x = rounds_axis([run.facts.metrics for run in runs])
        cards.append(card(curve_chart(f"{title} over the rounds", drawn, x, y, tall=not cards), title, note))
    first, rest = "".join(cards[:1]), "".join(cards[1:])
    return f'{heading("Round by round", "rounds")}\n{first}<div class="three">{rest}</div>' if cards else ""


def _points(metrics: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    """Of a key, or of the running sum of two of them."""
    parts = {"seconds": ("seconds_local", "seconds_refine"), "bytes": ("bytes_up", "bytes_down")}.get(key)
    if parts is None:
        return points_of([dict(line) for line in metrics], key)
    sums = np.cumsum([sum(line.get(part) or 0 for part in parts) for line in metrics])
    return [(line["round"] + 1, float(total)) for line, total in zip(metrics, sums, strict=True) if sums[-1] > 0]


def _last(key: str, value: float) -> str:
    shown_as: dict[str, Callable[[float], str]] = {
        "acc": lambda share: f"{share:.3f}",
        "seconds": duration,
        "bytes": size,
    }
    return shown_as.get(key, lambda number: f"{number:.3g}")(value)


def _agreement(runs: Sequence[Run]) -> str:
    """How many samples any two runs label alike, where they labelled the same samples."""
    answers = [(run.name, run.facts.answer) for run in runs if run.facts.answer is not None]
    alike = [(name, answer) for name, answer in answers if answer.ids == answers[0][1].ids]
    if len(alike) < 2:
        return ""
    names = [breakable(name) for name in shortened([name for name, _ in alike], 24)]
    lines = ["".join(f"<th>{name}</th>" for name in names)]
    for name, (_, answer) in zip(names, alike, strict=True):
        shares = [float((answer.labels == other.labels).mean()) for _, other in alike]
        cells = "".join(f'<td style="background:rgba(var(--shade),{0.75 * s:.2f})">{s:.3f}</td>' for s in shares)
        lines.append(f"<th>{name}</th>{cells}")
    rows = f"<tr><th></th>{lines[0]}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines[1:])
    shown = scrolling(f'<table class="confusion runs first">{rows}</table>', "Shares of samples with the same label")
    note = "The share of the samples that two runs give the same label. It needs no true label."
    return f"{heading('Do they agree?', 'agreement')}\n{faint(note)}\n{card(shown)}"


def _differences(runs: Sequence[Run]) -> str:
    flat = [_flat(without_secrets(run.facts.config, HIDDEN)) for run in runs]
    keys = [key for key in dict.fromkeys(key for one in flat for key in one) if key not in _OWN]
    differ = [key for key in keys if len({repr(one.get(key)) for one in flat}) > 1]
    title = heading("What differs in their settings", "settings")
    if not differ:
        return f"{title}\n{faint('Nothing: the settings are the same.')}"
    cells = [[key, *(_said(one.get(key)) for one in flat)] for key in differ]
    head = ["setting", *(run.name for run in runs)]
    return f"{title}\n{card(table(cells, head, 'Settings that differ'))}"


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def _said(value: Any) -> str:
    return "not set" if value is None else str(value)
