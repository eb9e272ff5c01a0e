"""The paper's picture of a split: a bubble for each client and class, darker and larger for more samples."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..data.statistics import Statistics
from ..errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection

#: Inches of a client's column and a class's row, unless the picture would grow past the bounds.
CELL = 0.2
LEAST_WIDTH, MOST_HEIGHT = 5.0, 60.0

#: More clients than this are drawn in several strips, one below the other.
CLIENTS_A_STRIP = 100

#: Points of an inch, matplotlib's unit of size, and the least room in inches in which a name can be read.
POINTS, NAME = 72.0, 0.12


def draw_bubbles(statistics: Statistics, title: str, path: Path) -> None:
    """Write the picture, K clients by C classes, in the format that the file's name ends in."""
    # Imported here: it takes a second, and only pictures need it. `Figure` alone opens no window anywhere.
    from matplotlib.figure import Figure

    clients, classes = statistics.counts.shape
    starts = range(0, clients, CLIENTS_A_STRIP)
    columns = min(clients, CLIENTS_A_STRIP)
    width = max(LEAST_WIDTH, CELL * columns)
    height = min(CELL * classes * len(starts), MOST_HEIGHT)
    figure = Figure(figsize=(width + 2, height + 0.5 * len(starts) + 0.8), dpi=100, layout="constrained")
    strips = figure.subplots(len(starts), squeeze=False)[:, 0]
    cell = min(width / columns, height / (classes * len(starts)), 0.5)
    for strip, start in zip(strips, starts, strict=True):
        bubbles = draw_strip(strip, statistics.counts[start : start + columns], statistics.counts.max(), cell)
        strip.set_xlim(-0.7, columns - 0.3)
        step = _step(width / columns)
        numbers = range(0, min(columns, clients - start), step)
        strip.set_xticks(numbers, [str(start + number) for number in numbers], fontsize=7)
        name_classes(strip, statistics.class_names, height / (classes * len(starts)))
    strips[-1].set_xlabel("client", fontsize=9)
    figure.suptitle(title, fontsize=10)
    bar = figure.colorbar(bubbles, ax=list(strips), pad=0.01, aspect=30, shrink=min(1.0, 4 / height))
    bar.set_label("samples", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    try:
        with warnings.catch_warnings():
            # A font without a name's letters draws boxes; that is no news for a terminal.
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            figure.savefig(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError(f"the picture {str(path)!r} cannot be written ({reason}); name another with --plot") from error


def draw_strip(axes: Axes, counts: np.ndarray, most: int, cell: float) -> PathCollection:
    """The bubbles of some clients; `most` is the largest number of any, which fills its cell of so many inches."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    client, label = np.nonzero(counts)
    numbers = counts[client, label]
    # The area grows with the number; the smallest bubble can still be seen, and so can the lightest shade.
    side = cell * POINTS * 0.95
    sizes = np.maximum(numbers / most * side**2, 2.0)
    shades = ListedColormap(colormaps["Blues"](np.linspace(0.25, 1, 256)))
    axes.set_ylim(counts.shape[1] - 0.3, -0.7)
    axes.grid(True, color="0.93", linewidth=0.4)
    axes.set_axisbelow(True)
    return axes.scatter(client, label, s=sizes, c=numbers, cmap=shades, vmin=0, vmax=most, linewidths=0)


def name_classes(axes: Axes, names: list[str], room: float) -> None:
    """The classes on the vertical axis, as many as can be read where each has so many inches."""
    places = range(0, len(names), _step(room))
    # A dollar sign would start a formula.
    axes.set_yticks(places, [names[place][:16].replace("$", r"\$") for place in places], fontsize=7)
    axes.set_ylabel("class", fontsize=9)
    axes.tick_params(length=0)


def _step(room: float) -> int:
    """Every how many of an axis's places are named, where each has so many inches.

    >>> _step(0.2), _step(0.05), _step(0.01)
    (1, 5, 15)
    """
    step = math.ceil(NAME / room)
    return step if step == 1 else 5 * math.ceil(step / 5)
