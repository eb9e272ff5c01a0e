"""The report's charts, as SVG to stand inside the page.

Colours are names of the page's style sheet, so that a chart follows the reader's light or dark theme. No
global state of matplotlib is used beyond a `with` block: the library's user may be drawing too.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .facts import Answer, Examination

Metrics = Sequence[dict[str, Any]]

#: What is drawn of the accuracies: key of metrics.jsonl, name in the legend, colour.
ACCURACIES = (
    ("acc_aggregated", "plain average", "plain"),
    ("acc_ensemble", "ensemble of teachers", "third"),
    ("acc_targets", "targets", "second"),
    ("acc_refined", "refined model", "accent"),
)
#: So many class names fit under an inch of a chart, upright while they are short; of more, every n-th is written.
UPRIGHT_NAMES, TILTED_NAMES = 6.0, 2.7
#: The longest name that stands upright.
UPRIGHT_LENGTH = 3
#: More points than these are drawn as a line without marks.
MOST_MARKS = 40

#: matplotlib wants a colour and not a name: each name has a stand-in that nothing else uses.
_COLOURS = {
    name: f"#0a0b{number:02x}"
    for number, name in enumerate(("ink", "faint", "rule", "accent", "second", "third", "plain"))
}
_RC = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mrtf",
    "text.parse_math": False,
    "font.size": 9.5,
    "axes.edgecolor": _COLOURS["rule"],
    "axes.labelcolor": _COLOURS["faint"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": _COLOURS["rule"],
    "grid.linewidth": 0.7,
    "text.color": _COLOURS["ink"],
    "xtick.color": _COLOURS["rule"],
    "ytick.color": _COLOURS["rule"],
    "xtick.labelcolor": _COLOURS["faint"],
    "ytick.labelcolor": _COLOURS["faint"],
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 4,
}
_WIDE, _LOW, _HALF = (9.2, 3.3), (9.2, 2.3), (4.5, 2.7)


def accuracy_chart(metrics: Metrics, classes: int | None) -> str | None:
    """The accuracies over the rounds; None where no round was scored."""
    scored = [line for line in metrics if line["acc"] is not None]
    if not scored:
        return None

    def draw(axes: Axes) -> None:
        for key, name, colour in ACCURACIES:
            _line(axes, metrics, key, name, colour)
        if classes is not None:
            axes.axhline(1 / classes, color=_COLOURS["faint"], linewidth=1, linestyle=":", label="guessing")
        axes.set_ylim(0, 1.02)
        _over_rounds(axes, metrics)
        _legend(axes)

    return _svg("Accuracy over the rounds", _WIDE, draw)


def loss_chart(metrics: Metrics) -> str | None:
    """The clients' mean loss and u_t over the rounds; None where no client reported a loss."""
    if all(line["local_loss"] is None for line in metrics):
        return None

    def draw(axes: Axes) -> None:
        _line(axes, metrics, "local_loss", "local loss", "accent")
        _line(axes, metrics, "local_weight", "u_t, weight of the local teachers", "third")
        axes.set_ylim(bottom=0)
        _over_rounds(axes, metrics)
        _legend(axes)

    return _svg("Local loss and weight of the local teachers over the rounds", _HALF, draw)


def seconds_chart(metrics: Metrics) -> str | None:
    """Where the time of each round went, stacked; None before the first round."""
    if not metrics:
        return None
    local = np.array([line["seconds_local"] for line in metrics], dtype=float)
    refine = np.array([line["seconds_refine"] for line in metrics], dtype=float)
    first = metrics[0]["round"] + 1
    edges = np.arange(len(metrics) + 1) + first - 0.5

    def draw(axes: Axes) -> None:
        axes.stairs(local, edges, fill=True, color=_COLOURS["plain"], label="clients train")
        axes.stairs(local + refine, edges, baseline=local, fill=True, color=_COLOURS["accent"], label="server refines")
        _over_rounds(axes, metrics)
        axes.set_ylabel("seconds")
        _legend(axes)

    return _svg("Seconds a round", _HALF, draw)


def predicted_chart(answer: Answer) -> str:
    """How many samples were given to each class."""
    counts = np.bincount(answer.labels, minlength=len(answer.class_names))
    return _class_bars("Samples predicted in each class", answer.class_names, counts, "samples", _HALF)


def recall_chart(answer: Answer, examination: Examination) -> str:
    """The share of each class that was found."""
    return _class_bars(
        "Recall of each class",
        answer.class_names,
        np.nan_to_num(examination.recall),
        "recall",
        _LOW,
        top=1.02,
    )


def confidence_chart(answer: Answer) -> str:
    """How sure the model is of its answers."""
    counts, edges = np.histogram(answer.confidences, bins=20, range=(0, 1))

    def draw(axes: Axes) -> None:
        axes.stairs(counts, edges, fill=True, color=_COLOURS["accent"])
        axes.set_xlim(0, 1)
        axes.set_xlabel("confidence")
        axes.set_ylabel("samples")
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))

    return _svg("Confidence of the answers", _HALF, draw)


def _line(axes: Axes, metrics: Metrics, key: str, name: str, colour: str) -> None:
    """A line through the rounds in which `key` was measured; nothing where it never was."""
    points = [(line["round"] + 1, line[key]) for line in metrics if line[key] is not None]
    if points:
        marker = "o" if len(points) <= MOST_MARKS else None
        axes.plot(*zip(*points, strict=True), color=_COLOURS[colour], marker=marker, label=name)


def _over_rounds(axes: Axes, metrics: Metrics) -> None:
    axes.set_xlim(metrics[0]["round"] + 0.5, metrics[-1]["round"] + 1.5)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
    axes.set_xlabel("round")


def _legend(axes: Axes) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=5, columnspacing=1.2, handlelength=1.4)


def _class_bars(
    title: str,
    names: Sequence[str],
    heights: npt.NDArray[Any],
    unit: str,
    size: tuple[float, float],
    top: float | None = None,
) -> str:
    tilted = max(map(len, names)) > UPRIGHT_LENGTH
    step = math.ceil(len(names) / (size[0] * (TILTED_NAMES if tilted else UPRIGHT_NAMES)))
    shown = [shortened(name, 14) for name in names[::step]]

    def draw(axes: Axes) -> None:
        edges = np.stack([np.arange(len(names)) - 0.36, np.arange(len(names)) + 0.36], axis=1).ravel()
        # One path of bars and gaps: a hundred classes cost no more than ten.
        values = np.append(heights.repeat(2).astype(float), 0)[: len(edges) - 1]
        values[1::2] = 0
        axes.stairs(values, edges, fill=True, color=_COLOURS["accent"])
        tilt: dict[str, Any] = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"} if tilted else {}
        axes.set_xticks(range(0, len(names), step), shown, **tilt)
        axes.tick_params(axis="x", length=0)
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_ylim(0, top)
        axes.set_ylabel(unit)
        if top is None:
            axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))

    return _svg(title, size, draw)


def shortened(name: str, most: int) -> str:
    """The name on one line of at most `most` characters.

    >>> shortened("aquarium fish and others", 12)
    'aquarium fi…'
    """
    line = " ".join(name.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _svg(title: str, size: tuple[float, float], draw: Callable[[Axes], None]) -> str:
    text = io.StringIO()
    with mpl.rc_context(_RC), warnings.catch_warnings():
        # The reader's browser writes the text, in a font that has the letters of any language.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure.add_subplot())
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return _for_page(text.getvalue(), title)


def _for_page(svg: str, title: str) -> str:
    """The bare `<svg>` element: themed, described, without ids that could meet another chart's."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    used = set(re.findall(r"#([\w-]+)[\")]", svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", svg)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    for name, colour in _COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)
