"""Figures for print: one palette, three file formats, a footer with every deviation from the paper."""

from __future__ import annotations

import io
import math
import statistics
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrtf_fedml.experiments.scores import Metrics
from mrtf_fedml.training.files import atomic_write

from .comparison import PanelResult, display_name
from .paper_numbers import paper_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, which the colour-blind can distinguish; in grey the dashes and markers differ.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8a8a8a", "#d55e00", "#7a3e9d", "#b59a00", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), "-", (0, (6, 1, 1.5, 1)), "--", "-.")
MARKS = ("o", "s", "^", "D", "v", "P", "*", "X", "<", ">")
#: The legend of the paper's numbers.
PAPERS = "the paper's number"
FORMATS = ("pdf", "png", "svg")
#: Width in inches of a one-column journal page; figures have this width, so that fonts keep their size in print.
WIDTH = 7.2
#: Inches: height of a legend line and of a footer line, width of a legend entry and of a footer character.
_LEGEND_LINE, _FOOTER_LINE, _LEGEND_NAME, _FOOTER_LETTER = 0.18, 0.115, 1.44, 0.0485
_STYLE = {
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    # Text stays text, and equal results give equal files.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "mrtf",
}


def new_figure(rows: int, columns: int, height: float = 1.7, width: float = WIDTH) -> tuple[Figure, list[list[Axes]]]:
    """An empty figure with panels; `height` is that of a row, in inches."""
    # Imported here: it takes a second. `Figure` opens no window and does not use pyplot.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=(width, height * rows + 0.3), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False)
    return figure, [list(row) for row in panels]


def add_legend(figure: Figure, panels: Sequence[Sequence[Axes]], columns: int = 5) -> None:
    """One legend for all panels, above them."""
    handles: dict[str, Any] = {}
    for axes in (axes for row in panels for axes in row):
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        # Matplotlib lists lines before bars; the paper's numbers come last.
        handles = dict(sorted(handles.items(), key=lambda result: result[0] == PAPERS))
        # Matplotlib fills the legend by columns; it is read by lines.
        columns = max(1, min(columns, int(figure.get_figwidth() / _LEGEND_NAME)))
        labels, lines = list(handles), math.ceil(len(handles) / columns)
        across = math.ceil(len(labels) / lines)
        labels = [label for column in range(across) for label in labels[column::across]]
        figure.legend(
            [handles[label] for label in labels], labels, loc="outside upper center", ncols=across, frameon=False,
            fontsize=8,
        )  # fmt: skip
        figure.set_figheight(figure.get_figheight() + _LEGEND_LINE * lines)


def save(figure: Figure, folder: Path, footer: Sequence[str], name: str = "figure") -> list[Path]:
    """Write the figure as PDF, PNG and SVG with the footer, and return the files."""
    from matplotlib import rc_context

    text = "\n".join(
        line for part in footer if part for line in textwrap.wrap(part, int(figure.get_figwidth() / _FOOTER_LETTER))
    )
    if text:
        figure.supxlabel(text, fontsize=6.5, color="0.25", x=0.01, ha="left")
        # The footer extends the page, so that the panels keep their size.
        figure.set_figheight(figure.get_figheight() + _FOOTER_LINE * (text.count("\n") + 1))
    for axes in figure.axes:
        # The size of a title is set when it is created, by the user's style.
        axes.title.set_fontsize(8.0)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for kind in FORMATS:
        content = io.BytesIO()
        # No date: equal results give equal files.
        dates: dict[str, dict[str, None]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
        with rc_context(_STYLE):
            figure.savefig(content, format=kind, dpi=200, metadata=dates[kind])
        atomic_write(folder / f"{name}.{kind}", content.getvalue())
        files.append(folder / f"{name}.{kind}")
    return files


#: Algorithms with a fixed line style in all figures.
_STYLED_ALGORITHMS = (
    "FedAvg",
    "FedProx",
    "FedMMD",
    "FedOpt",
    "Scaffold",
    "FedDF",
    "MrTF:paper",
    "MrTF:tuned",
    "MrTF:released",
)
#: Hatches, which distinguish bars in grey.
_HATCHES = ("", "//", "..", "xx", "\\\\", "++", "--")
#: The models of a round of FedDF, by metric, and their names in the figure.
_STAGES = {"acc_aggregated": "aggregated", "acc_ensemble": "ensemble (AvgLogi)", "acc_refined": "distilled"}


def draw_curves(results: Sequence[PanelResult]) -> Figure:
    """Test accuracy over communication rounds, with a band of one standard deviation."""
    figure, panels = _new_grid(results)
    for axes, result in zip(_flatten(panels), _panel_grid(results), strict=True):
        if result is None:
            axes.set_axis_off()
            continue
        for label, row in result.rows.items():
            look = _line_style(label)
            rounds = [number for number, _ in row.curve]
            means = [100 * value.mean for _, value in row.curve]
            width = 1.8 if label.startswith("MrTF") else 1.1
            axes.plot(rounds, means, label=display_name(label), linewidth=width, markevery=_mark_every(rounds), **look)
            spreads = [100 * (value.std or 0.0) for _, value in row.curve]
            if any(spreads):
                low = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
                high = [mean + spread for mean, spread in zip(means, spreads, strict=True)]
                axes.fill_between(rounds, low, high, color=look["color"], alpha=0.15, linewidth=0)
    _add_labels(figure, panels, results, "Communication rounds", "Test accuracy (%)")
    return figure


def draw_stages(results: Sequence[PanelResult]) -> Figure:
    """FedDF round by round: the aggregated model, the ensemble of local models, the distilled model."""
    figure, panels = _new_grid(results)
    for axes, result in zip(_flatten(panels), _panel_grid(results), strict=True):
        if result is None:
            axes.set_axis_off()
            continue
        for place, (key, name) in enumerate(_STAGES.items()):
            points = stage_accuracies(result.metrics["FedDF"], key)
            rounds, values = [number for number, _ in points], [100 * value for _, value in points]
            axes.plot(
                rounds, values, linestyle=DASHES[place], color=COLOURS[(0, 1, 6)[place]], marker=MARKS[place],
                markersize=3, markevery=_mark_every(rounds), linewidth=1.3, label=name,
            )  # fmt: skip
    _add_labels(figure, panels, results, "Communication rounds", "Test accuracy (%)")
    return figure


def stage_accuracies(runs: Sequence[Metrics], key: str) -> list[tuple[int, float]]:
    """One model's accuracy in the scored rounds, averaged over the seeds; `acc` replaces a missing `acc_refined`."""
    keys = ("acc_refined", "acc") if key == "acc_refined" else (key,)
    points = []
    for lines in zip(*runs, strict=True):
        known = [[line[k] for k in keys if line.get(k) is not None] for line in lines]
        if all(known):
            points.append((lines[0]["round"] + 1, statistics.fmean(first for first, *_ in known)))
    return points


def draw_bars(results: Sequence[PanelResult]) -> Figure:
    """The modules of MrTF as bars, like the ablation of the paper; the axis is cut, and its label says so."""
    figure, panels = _new_grid(results, height=2.0)
    for axes, result in zip(_flatten(panels), _panel_grid(results), strict=True):
        if result is None:
            axes.set_axis_off()
            continue
        values = [100 * row.final.mean for row in result.rows.values()]
        spreads = [100 * (row.final.std or 0.0) for row in result.rows.values()]
        # With more than five bars the numbers do not fit horizontally.
        turned = 90 if len(values) > 5 else 0
        for place, (label, value, spread) in enumerate(zip(result.rows, values, spreads, strict=True)):
            bars = axes.bar(
                place, value, yerr=spread or None, color=COLOURS[place % len(COLOURS)], edgecolor="black",
                linewidth=0.5, hatch=_HATCHES[place % len(_HATCHES)], label=display_name(label),
            )  # fmt: skip
            axes.bar_label(bars, labels=[f"{value:.1f}"], fontsize=6, padding=2, rotation=turned)
        axes.set_xticks([])
        low, high = min(values), max(values)
        axes.set_ylim(max(0.0, low - 0.6 * (high - low) - 1), high + 0.35 * (high - low) + 1)
    _add_labels(figure, panels, results, "", "Test accuracy (%), axis cut")
    return figure


def draw_table(experiment: str, results: Sequence[PanelResult]) -> Figure:
    """A table of the paper as groups of bars, with the paper's numbers as lines across the bars."""
    figure, ((axes,),) = new_figure(1, 1, height=3.0, width=WIDTH)
    labels = list(results[0].rows)
    width = 0.8 / len(labels)
    for place, label in enumerate(labels):
        name = label.partition(":")[0]
        for group, result in enumerate(results):
            left = group - 0.4 + place * width
            value, paper = (
                100 * result.rows[label].final.mean,
                paper_number(experiment, f"{result.panel.title}, {name}"),
            )
            colour = _line_style(label)["color"]
            axes.bar(
                left + width / 2, value, width * 0.92, color=colour, edgecolor="black", linewidth=0.5,
                hatch=_HATCHES[place % len(_HATCHES)], label=display_name(label) if group == 0 else None,
            )  # fmt: skip
            # Above the paper's line where the two would overlap.
            under = value if paper is None or not -1 < paper.value - value < 4 else paper.value
            axes.text(left + width / 2, under + 0.8, f"{value:.1f}", ha="center", fontsize=6)
            if paper is not None:
                line = PAPERS if group == place == 0 else None
                axes.plot([left, left + width], [paper.value] * 2, color="black", linewidth=2, label=line)
    axes.set_xticks(range(len(results)), [result.column.replace(", ", "\n", 1) for result in results])
    axes.set_ylabel("Test accuracy (%)")
    axes.grid(axis="x", visible=False)
    add_legend(figure, [[axes]])
    return figure


def _new_grid(results: Sequence[PanelResult], height: float = 1.7) -> tuple[Figure, list[list[Axes]]]:
    rows, columns = _names(results)
    # Six columns need a wider page than four.
    return new_figure(len(rows), len(columns), height, max(WIDTH, 1.75 * len(columns)) if len(columns) > 1 else 4.5)


def _names(results: Sequence[PanelResult]) -> tuple[list[str], list[str]]:
    return list(dict.fromkeys(result.panel.row for result in results)), list(
        dict.fromkeys(result.panel.column for result in results)
    )


def _panel_grid(results: Sequence[PanelResult]) -> list[PanelResult | None]:
    """The panels row by row; None for an empty place."""
    rows, columns = _names(results)
    places = {(result.panel.row, result.panel.column): result for result in results}
    return [places.get((row, column)) for row in rows for column in columns]


def _flatten(panels: Sequence[Sequence[Axes]]) -> list[Axes]:
    return [axes for row in panels for axes in row]


def _add_labels(figure: Figure, panels: list[list[Axes]], results: Sequence[PanelResult], x: str, y: str) -> None:
    from matplotlib.ticker import MaxNLocator

    rows, columns = _names(results)
    shown, titles = (
        {result.panel.row: result.row for result in results},
        {result.panel.column: result.column for result in results},
    )
    for axes, column in zip(panels[0], columns, strict=True):
        axes.set_title(titles[column])
    for row, name in zip(panels, rows, strict=True):
        row[0].set_ylabel(f"{shown[name]}\n{y}" if name else y)
    for axes in panels[-1]:
        axes.set_xlabel(x)
    if x:
        for axes in _flatten(panels):
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    add_legend(figure, panels)


def _line_style(label: str) -> dict[str, Any]:
    place = _STYLED_ALGORITHMS.index(label) if label in _STYLED_ALGORITHMS else len(_STYLED_ALGORITHMS)
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": DASHES[place % len(DASHES)],
        "marker": MARKS[place % len(MARKS)],
        # Markers must be visible on thick lines.
        "markersize": 5.5 if label.startswith("MrTF") else 3.0,
        "markeredgecolor": "white" if label.startswith("MrTF") else COLOURS[place % len(COLOURS)],
        "markeredgewidth": 0.5,
    }


def _mark_every(rounds: Sequence[int]) -> int:
    return max(1, len(rounds) // 6)
