"""The paper's plot of a partition: one bubble per client and class, darker and larger for more samples."""

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

#: Inches per client and per class, within the limits of width and height.
CELL = 0.2
MIN_WIDTH, MAX_HEIGHT = 5.0, 60.0

#: More clients are drawn in several strips below each other.
CLIENTS_PER_STRIP = 100

#: Points per inch, matplotlib's unit of size, and the height of a readable name in inches.
POINTS, NAME_HEIGHT = 72.0, 0.12


def draw_partition(statistics: Statistics, title: str, path: Path) -> None:
    """Write the plot of K clients by C classes, in the format of the file's suffix."""
    # Imported here, since it is slow to import and rarely needed. `Figure` alone opens no window.
    from matplotlib.figure import Figure

    clients, classes = statistics.counts.shape
    starts = range(0, clients, CLIENTS_PER_STRIP)
    columns = min(clients, CLIENTS_PER_STRIP)
    width = max(MIN_WIDTH, CELL * columns)
    height = min(CELL * classes * len(starts), MAX_HEIGHT)
    figure = Figure(figsize=(width + 2, height + 0.5 * len(starts) + 0.8), dpi=100, layout="constrained")
    strips = figure.subplots(len(starts), squeeze=False)[:, 0]
    cell = min(width / columns, height / (classes * len(starts)), 0.5)
    for strip, start in zip(strips, starts, strict=True):
        bubbles = draw_strip(strip, statistics.counts[start : start + columns], statistics.counts.max(), cell)
        strip.set_xlim(-0.7, columns - 0.3)
        step = _label_step(width / columns)
        numbers = range(0, min(columns, clients - start), step)
        strip.set_xticks(numbers, [str(start + number) for number in numbers], fontsize=7)
        label_classes(strip, statistics.class_names, height / (classes * len(starts)))
    strips[-1].set_xlabel("client", fontsize=9)
    figure.suptitle(title, fontsize=10)
    bar = figure.colorbar(bubbles, ax=list(strips), pad=0.01, aspect=30, shrink=min(1.0, 4 / height))
    bar.set_label("samples", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    try:
        with warnings.catch_warnings():
            # A font without some letters draws boxes; that needs no warning.
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            figure.savefig(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError(f"the plot {str(path)!r} cannot be written ({reason}); use another file with --plot") from error


def draw_strip(axes: Axes, counts: np.ndarray, maximum: int, cell: float) -> PathCollection:
    """The bubbles of some clients; a bubble of `maximum` samples fills its cell of `cell` inches."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    client, label = np.nonzero(counts)
    numbers = counts[client, label]
    # The area is proportional to the number; the smallest bubble and the lightest shade stay visible.
    side = cell * POINTS * 0.95
    sizes = np.maximum(numbers / maximum * side**2, 2.0)
    shades = ListedColormap(colormaps["Blues"](np.linspace(0.25, 1, 256)))
    axes.set_ylim(counts.shape[1] - 0.3, -0.7)
    axes.grid(True, color="0.93", linewidth=0.4)
    axes.set_axisbelow(True)
    return axes.scatter(client, label, s=sizes, c=numbers, cmap=shades, vmin=0, vmax=maximum, linewidths=0)


def label_classes(axes: Axes, names: list[str], room: float) -> None:
    """The classes on the vertical axis, as many as are readable at `room` inches per class."""
    rows = range(0, len(names), _label_step(room))
    # A dollar sign would start a formula.
    axes.set_yticks(rows, [names[row][:16].replace("$", r"\$") for row in rows], fontsize=7)
    axes.set_ylabel("class", fontsize=9)
    axes.tick_params(length=0)


def _label_step(room: float) -> int:
    """The step between labels of an axis with `room` inches per value.

    >>> _label_step(0.2), _label_step(0.05), _label_step(0.01)
    (1, 5, 15)
    """
    step = math.ceil(NAME_HEIGHT / room)
    return step if step == 1 else 5 * math.ceil(step / 5)
