"""Figures for print and for every eye: one palette, three formats, and a foot that says what was not the paper's."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...rounds.whole_file import replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, which stay apart for the colour-blind, and in grey by their dashes and marks.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8a8a8a", "#d55e00", "#7a3e9d", "#b59a00", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), "-", (0, (6, 1, 1.5, 1)), "--", "-.")
MARKS = ("o", "s", "^", "D", "v", "P", "*", "X", "<", ">")
#: What a mark of the paper's own number is called in a legend.
PAPERS = "the paper's number"
FORMATS = ("pdf", "png", "svg")
#: Inches of the page's width in a journal of one column; figures are drawn at it, so that 8 points are 8 points.
WIDTH = 7.2
#: Inches of a line of the legend, and of the foot; of a name in the legend with its sign; and of a letter of the foot.
_LINE, _FOOT_LINE, _NAME, _LETTER = 0.18, 0.115, 1.44, 0.0485
_SETTINGS = {
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    # Text stays text, and equal results make equal files.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "mrtf",
}


def new_figure(rows: int, columns: int, height: float = 1.7, width: float = WIDTH) -> tuple[Figure, list[list[Axes]]]:
    """An empty figure with panels; `height` is a row's in inches."""
    # Imported here: it takes a second. `Figure` alone opens no window and leaves pyplot to the user.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height * rows + 0.3), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False)
    return figure, [list(row) for row in panels]


def one_legend(figure: Figure, panels: Sequence[Sequence[Axes]], columns: int = 5) -> None:
    """One legend for all panels, above them."""
    handles: dict[str, Any] = {}
    for axes in (axes for row in panels for axes in row):
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        # Lines come before bars by themselves; what is compared with comes last.
        handles = dict(sorted(handles.items(), key=lambda one: one[0] == PAPERS))
        # Matplotlib fills column after column; who reads, reads line after line.
        columns = max(1, min(columns, int(figure.get_figwidth() / _NAME)))
        labels, lines = list(handles), math.ceil(len(handles) / columns)
        across = math.ceil(len(labels) / lines)
        labels = [label for column in range(across) for label in labels[column::across]]
        figure.legend(
            [handles[label] for label in labels], labels, loc="outside upper center", ncols=across, frameon=False,
            fontsize=8,
        )  # fmt: skip
        figure.set_figheight(figure.get_figheight() + _LINE * lines)


def save(figure: Figure, folder: Path, foot: Sequence[str], name: str = "figure") -> list[Path]:
    """Write the figure as PDF, PNG and SVG, each with the foot; returns the files."""
    from matplotlib import rc_context

    text = "\n".join(
        line for said in foot if said for line in textwrap.wrap(said, int(figure.get_figwidth() / _LETTER))
    )
    if text:
        figure.supxlabel(text, fontsize=6.5, color="0.25", x=0.01, ha="left")
        # The foot is added to the page, and takes nothing from the panels.
        figure.set_figheight(figure.get_figheight() + _FOOT_LINE * (text.count("\n") + 1))
    for axes in figure.axes:
        # A title takes the size of the day it is set, which is the user's own.
        axes.title.set_fontsize(8.0)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for kind in FORMATS:
        content = io.BytesIO()
        # No date either: equal results make equal files.
        dates: dict[str, dict[str, None]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
        with rc_context(_SETTINGS):
            figure.savefig(content, format=kind, dpi=200, metadata=dates[kind])
        replace_file(folder / f"{name}.{kind}", content.getvalue())
        files.append(folder / f"{name}.{kind}")
    return files
