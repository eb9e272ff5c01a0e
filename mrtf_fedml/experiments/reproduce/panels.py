"""How compared runs are drawn: curves over rounds, bars of modules, bars beside a table's numbers, FedDF's stages."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..scores import Metrics
from .comparison import Done, named
from .drawing import COLOURS, DASHES, MARKS, PAPERS, WIDTH, new_figure, one_legend
from .paper_numbers import paper_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Each algorithm has one look in all figures.
_LOOKS = ("FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold", "FedDF", "MrTF:paper", "MrTF:tuned", "MrTF:released")
#: Bars stay apart in grey too.
_HATCHES = ("", "//", "..", "xx", "\\\\", "++", "--")
#: The models of a round of FedDF, and what the figure calls them.
_STAGES = {"acc_aggregated": "aggregated", "acc_ensemble": "ensemble (AvgLogi)", "acc_refined": "distilled"}


def draw_curves(done: Sequence[Done]) -> Figure:
    """Test accuracy over communication rounds, a panel for each row and column, with one deviation either side."""
    figure, panels = _grid(done)
    for axes, one in zip(_each(panels), _placed(done), strict=True):
        if one is None:
            axes.set_axis_off()
            continue
        for label, row in one.rows.items():
            look = _look(label)
            rounds = [number for number, _ in row.curve]
            means = [100 * value.mean for _, value in row.curve]
            width = 1.8 if label.startswith("MrTF") else 1.1
            axes.plot(rounds, means, label=named(label), linewidth=width, markevery=_every(rounds), **look)
            spreads = [100 * (value.deviation or 0.0) for _, value in row.curve]
            if any(spreads):
                low = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
                high = [mean + spread for mean, spread in zip(means, spreads, strict=True)]
                axes.fill_between(rounds, low, high, color=look["color"], alpha=0.15, linewidth=0)
    _label(figure, panels, done, "Communication rounds", "Test accuracy (%)")
    return figure


def draw_stages(done: Sequence[Done]) -> Figure:
    """FedDF round by round: the aggregated model, the ensemble of local models, the distilled model."""
    figure, panels = _grid(done)
    for axes, one in zip(_each(panels), _placed(done), strict=True):
        if one is None:
            axes.set_axis_off()
            continue
        for place, (key, name) in enumerate(_STAGES.items()):
            points = stage(one.metrics["FedDF"], key)
            rounds, values = [number for number, _ in points], [100 * value for _, value in points]
            axes.plot(
                rounds, values, linestyle=DASHES[place], color=COLOURS[(0, 1, 6)[place]], marker=MARKS[place],
                markersize=3, markevery=_every(rounds), linewidth=1.3, label=name,
            )  # fmt: skip
    _label(figure, panels, done, "Communication rounds", "Test accuracy (%)")
    return figure


def stage(runs: Sequence[Metrics], key: str) -> list[tuple[int, float]]:
    """One model's accuracy in the rounds that were scored, its mean over the seeds; the refined model is the answer."""
    keys = ("acc_refined", "acc") if key == "acc_refined" else (key,)
    points = []
    for lines in zip(*runs, strict=True):
        known = [[line[k] for k in keys if line.get(k) is not None] for line in lines]
        if all(known):
            points.append((lines[0]["round"] + 1, statistics.fmean(first for first, *_ in known)))
    return points


def draw_bars(done: Sequence[Done]) -> Figure:
    """The modules of MrTF, bar by bar, as the paper draws its ablation; the axis is cut, and says so."""
    figure, panels = _grid(done, height=2.0)
    for axes, one in zip(_each(panels), _placed(done), strict=True):
        if one is None:
            axes.set_axis_off()
            continue
        values = [100 * row.final.mean for row in one.rows.values()]
        spreads = [100 * (row.final.deviation or 0.0) for row in one.rows.values()]
        # The presets' bars beside the paper's five leave no room for numbers that lie.
        turned = 90 if len(values) > 5 else 0
        for place, (label, value, spread) in enumerate(zip(one.rows, values, spreads, strict=True)):
            drawn = axes.bar(
                place, value, yerr=spread or None, color=COLOURS[place % len(COLOURS)], edgecolor="black",
                linewidth=0.5, hatch=_HATCHES[place % len(_HATCHES)], label=named(label),
            )  # fmt: skip
            axes.bar_label(drawn, labels=[f"{value:.1f}"], fontsize=6, padding=2, rotation=turned)
        axes.set_xticks([])
        low, high = min(values), max(values)
        axes.set_ylim(max(0.0, low - 0.6 * (high - low) - 1), high + 0.35 * (high - low) + 1)
    _label(figure, panels, done, "", "Test accuracy (%), axis cut")
    return figure


def draw_table(scene: str, done: Sequence[Done]) -> Figure:
    """A table of the paper as groups of bars, the paper's own number as a line across each bar that has one."""
    figure, ((axes,),) = new_figure(1, 1, height=3.0, width=WIDTH)
    labels = list(done[0].rows)
    width = 0.8 / len(labels)
    for place, label in enumerate(labels):
        name = label.partition(":")[0]
        for group, one in enumerate(done):
            left = group - 0.4 + place * width
            value, paper = 100 * one.rows[label].final.mean, paper_number(scene, f"{one.panel.title}, {name}")
            colour = _look(label)["color"]
            axes.bar(
                left + width / 2, value, width * 0.92, color=colour, edgecolor="black", linewidth=0.5,
                hatch=_HATCHES[place % len(_HATCHES)], label=named(label) if group == 0 else None,
            )  # fmt: skip
            # Above the paper's line where the two would lie on each other.
            under = value if paper is None or not -1 < paper.value - value < 4 else paper.value
            axes.text(left + width / 2, under + 0.8, f"{value:.1f}", ha="center", fontsize=6)
            if paper is not None:
                line = PAPERS if group == place == 0 else None
                axes.plot([left, left + width], [paper.value] * 2, color="black", linewidth=2, label=line)
    axes.set_xticks(range(len(done)), [one.column.replace(", ", "\n", 1) for one in done])
    axes.set_ylabel("Test accuracy (%)")
    axes.grid(axis="x", visible=False)
    one_legend(figure, [[axes]])
    return figure


def _grid(done: Sequence[Done], height: float = 1.7) -> tuple[Figure, list[list[Axes]]]:
    rows, columns = _names(done)
    # Six panels side by side need a wider page than four.
    return new_figure(len(rows), len(columns), height, max(WIDTH, 1.75 * len(columns)) if len(columns) > 1 else 4.5)


def _names(done: Sequence[Done]) -> tuple[list[str], list[str]]:
    return list(dict.fromkeys(one.panel.row for one in done)), list(dict.fromkeys(one.panel.column for one in done))


def _placed(done: Sequence[Done]) -> list[Done | None]:
    """The panels row by row; None where there is none."""
    rows, columns = _names(done)
    places = {(one.panel.row, one.panel.column): one for one in done}
    return [places.get((row, column)) for row in rows for column in columns]


def _each(panels: Sequence[Sequence[Axes]]) -> list[Axes]:
    return [axes for row in panels for axes in row]


def _label(figure: Figure, panels: list[list[Axes]], done: Sequence[Done], x: str, y: str) -> None:
    from matplotlib.ticker import MaxNLocator

    rows, columns = _names(done)
    shown, titles = {one.panel.row: one.row for one in done}, {one.panel.column: one.column for one in done}
    for axes, column in zip(panels[0], columns, strict=True):
        axes.set_title(titles[column])
    for row, name in zip(panels, rows, strict=True):
        row[0].set_ylabel(f"{shown[name]}\n{y}" if name else y)
    for axes in panels[-1]:
        axes.set_xlabel(x)
    if x:
        for axes in _each(panels):
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    one_legend(figure, panels)


def _look(label: str) -> dict[str, Any]:
    place = _LOOKS.index(label) if label in _LOOKS else len(_LOOKS)
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": DASHES[place % len(DASHES)],
        "marker": MARKS[place % len(MARKS)],
        # Marks are seen on thick lines too.
        "markersize": 5.5 if label.startswith("MrTF") else 3.0,
        "markeredgecolor": "white" if label.startswith("MrTF") else COLOURS[place % len(COLOURS)],
        "markeredgewidth": 0.5,
    }


def _every(rounds: Sequence[int]) -> int:
    return max(1, len(rounds) // 6)
