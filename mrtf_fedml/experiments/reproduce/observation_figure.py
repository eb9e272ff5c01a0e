"""Fig. obser as the paper lays it out: five pictures of features, two of divergence, one of accuracy by start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...report.landscape import embedded
from .drawing import COLOURS, DASHES, MARKS, new_figure, one_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Rows:
    """One row of the figure.

    Attributes:
        title: the dataset.
        levels: the splits' names, from homogeneous to heterogeneous.
        starts: r_0 of each theta_0.
        accuracies: [starts, 5] of theta_0, theta_Cen and theta_Agg at each level, in percent.
        features: [5, samples, D] of the same models.
        labels: [samples].
        variance: of the clients' weights, by level.
        divergence: of the aggregated weights from the centralised, by level.
    """

    title: str
    levels: list[str]
    starts: list[int]
    accuracies: Array
    features: Array
    labels: Array
    variance: Array
    divergence: Array


def draw_observation(rows: Sequence[Rows]) -> Figure:
    """The rows below each other, each with the paper's eight panels."""
    figure, panels = new_figure(len(rows), 8, height=1.75, width=13.5)
    for axes, row in zip(panels, rows, strict=True):
        names = ["θ₀", "θ Cen", *(f"θ Agg, {level}" for level in row.levels)]
        for place, name in enumerate(names):
            _scatter(axes[place], row.features[place], row.labels)
            axes[place].set_title(name)
            axes[place].text(
                0.97, 0.97, f"{row.accuracies[len(row.starts) - 2, place]:.1f} %", ha="right", va="top", fontsize=8,
                transform=axes[place].transAxes, bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1},
            )  # fmt: skip
        axes[0].set_ylabel(row.title)
        _bars(axes[5], row.levels, row.variance, "Gradient variance")
        _bars(axes[6], row.levels, row.divergence, "Weight divergence")
        for model in range(len(names)):
            shown = ("θ₀", "θ Cen")[model] if model < 2 else f"θ Agg, level {model - 1} of the row"
            axes[7].plot(
                row.starts, row.accuracies[:, model], linestyle=DASHES[model], color=COLOURS[(7, 0, 2, 1, 6)[model]],
                marker=MARKS[model], markersize=3, linewidth=1.2, label=shown,
            )  # fmt: skip
        axes[7].set_title("Accuracy (%)")
        axes[7].set_xlabel("Pre-training steps")
    one_legend(figure, panels)
    return figure


def _scatter(axes: Axes, features: Array, labels: Array) -> None:
    """Features in two dimensions: as they are where there are two, else by t-SNE."""
    flat = features.reshape(len(features), -1).astype(np.float64)
    places = flat if flat.shape[1] == 2 else _by_tsne(flat)
    for label in np.unique(labels).tolist():
        own = places[labels == label]
        axes.scatter(
            own[:, 0], own[:, 1], s=5, color=COLOURS[label % len(COLOURS)], marker=MARKS[label % len(MARKS)],
            linewidths=0, rasterized=True,
        )  # fmt: skip
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.08)
    low, high = axes.get_ylim()
    # Room for the accuracy in the corner.
    axes.set_ylim(low, high + 0.15 * (high - low))


def _by_tsne(flat: Array) -> Array:
    # A network that has learnt nothing gives all samples the same features: there is nothing to spread out.
    if not np.isfinite(flat).all() or np.ptp(flat, axis=0).max(initial=0) == 0:
        return np.zeros((len(flat), 2))
    return embedded(flat).astype(np.float64)


def _bars(axes: Axes, levels: Sequence[str], values: Array, title: str) -> None:
    drawn = axes.bar(range(len(levels)), values, color=[COLOURS[place] for place in (2, 1, 6)], edgecolor="black")
    for bar, hatch in zip(drawn, ("", "//", "xx"), strict=True):
        bar.set_hatch(hatch)
    axes.set_xticks(range(len(levels)), levels, fontsize=6)
    axes.bar_label(drawn, labels=[f"{value:.2g}" for value in values], fontsize=6)
    axes.margins(y=0.15)
    axes.set_title(title)
