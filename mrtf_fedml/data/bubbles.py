"""The paper's picture of a split: a bubble for each client and class, darker and larger for more samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UserError
from .statistics import Statistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection

#: Inches of a client's column and a class's row, as far as the page's bounds allow.
CELL = 0.22
WIDTH, HEIGHT = (5.0, 24.0), (2.6, 16.0)

#: Points of an inch, matplotlib's unit of size.
POINTS = 72.0

#: More names than this along an axis cannot be read.
MOST_NAMES = 100


def draw_bubbles(statistics: Statistics, title: str, path: Path) -> None:
    """Write the picture, K clients by C classes, in the format that the file's name ends in."""
    # Imported here: it takes a second, and only pictures need it. `Figure` alone opens no window anywhere.
    from matplotlib.figure import Figure

    clients, classes = statistics.counts.shape
    plot = np.clip(CELL * np.array([clients, classes]), [WIDTH[0], HEIGHT[0]], [WIDTH[1], HEIGHT[1]])
    figure = Figure(figsize=(plot[0] + 1.6, plot[1] + 1.1), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    cell = min(plot[0] / clients, plot[1] / classes, 0.6) * POINTS
    bubbles = _bubbles(axes, statistics, cell)
    _name_axes(axes, statistics, plot)
    axes.set_title(title, fontsize=10)
    bar = figure.colorbar(bubbles, ax=axes, pad=0.01, fraction=0.03)
    bar.set_label("samples", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError(f"the picture {str(path)!r} cannot be written ({reason}); name another with --plot") from error


def _bubbles(axes: Axes, statistics: Statistics, cell: float) -> PathCollection:
    client, label = np.nonzero(statistics.counts)
    numbers = statistics.counts[client, label]
    # The area grows with the number, and the largest bubble just fills its cell; the smallest can still be seen.
    sizes = np.maximum(numbers / numbers.max() * (0.95 * cell) ** 2, min(1.5, cell**2))
    axes.set_xlim(-0.7, statistics.clients - 0.3)
    axes.set_ylim(statistics.classes - 0.3, -0.7)
    axes.grid(True, color="0.93", linewidth=0.4)
    axes.set_axisbelow(True)
    # From a shade that stands out from the paper to almost black.
    shades = {"cmap": "Blues", "vmin": -0.35 * numbers.max(), "vmax": numbers.max()}
    return axes.scatter(client, label, s=sizes, c=numbers, linewidths=0, **shades)


def _name_axes(axes: Axes, statistics: Statistics, plot: np.ndarray) -> None:
    for axis, number, room in ((axes.xaxis, statistics.clients, plot[0]), (axes.yaxis, statistics.classes, plot[1])):
        step = max(1, int(np.ceil(number * 0.16 / room)), number // MOST_NAMES)
        step = step if step < 3 else int(np.ceil(step / 5) * 5)
        ticks = np.arange(0, number, step)
        names = statistics.class_names if axis is axes.yaxis else [str(client) for client in range(number)]
        axis.set_ticks(ticks, [names[tick][:16].replace("$", r"\$") for tick in ticks], fontsize=7)
        axis.set_tick_params(length=0)
    axes.set_xlabel("client", fontsize=9)
    axes.set_ylabel("class", fontsize=9)
    if statistics.clients > 10 and axes.xaxis.get_ticklabels():
        axes.tick_params(axis="x", rotation=90 if len(axes.get_xticks()) > 30 else 0)
