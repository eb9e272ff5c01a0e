"""The figures of a comparison, as PNG: accuracy over rounds, and the bars of the ablation."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .scores import Row

#: Colours that stay apart for the colour-blind (Okabe and Ito).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a8a8a")


def curves(rows: Sequence[Row], title: str) -> bytes:
    """Accuracy over rounds: the mean over seeds, and one standard deviation either side of it."""
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, row in enumerate(rows):
        colour = _COLOURS[number % len(_COLOURS)]
        style = "-" if number < len(_COLOURS) else "--"
        rounds = [step for step, _ in row.curve]
        means = [value.mean for _, value in row.curve]
        spreads = [value.deviation or 0.0 for _, value in row.curve]
        axes.plot(rounds, means, style, color=colour, label=row.label, linewidth=1.6)
        if any(spreads):
            low = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
            high = [mean + spread for mean, spread in zip(means, spreads, strict=True)]
            axes.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("round")
    axes.set_ylabel("accuracy")
    axes.set_title(title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return _png(figure)


def bars(rows: Sequence[Row], title: str) -> bytes:
    """The final accuracy of each, with its standard deviation, as the paper draws its ablation."""
    figure = Figure(figsize=(6.5, 4.0), layout="constrained")
    axes = figure.subplots()
    means = [row.final.mean for row in rows]
    spreads = [row.final.deviation or 0.0 for row in rows]
    drawn = axes.bar(
        [row.label for row in rows],
        means,
        yerr=spreads if any(spreads) else None,
        color=[_COLOURS[number % len(_COLOURS)] for number in range(len(rows))],
        capsize=4,
        width=0.65,
    )
    axes.bar_label(drawn, labels=[f"{mean:.3f}" for mean in means], padding=3)
    # The bars differ by little beside their height: the axis begins below the lowest, and says so.
    lowest = min(mean - spread for mean, spread in zip(means, spreads, strict=True))
    highest = max(mean + spread for mean, spread in zip(means, spreads, strict=True))
    bottom = max(0.0, lowest - (highest - lowest) - 0.02)
    axes.set_ylim(bottom, min(1.05, highest + 0.3 * (highest - lowest) + 0.02))
    axes.set_ylabel("final accuracy (axis cut)" if bottom > 0 else "final accuracy")
    axes.set_title(title)
    return _png(figure)


def _png(figure: Figure) -> bytes:
    # No pyplot: the library's user may be drawing too. No date either: equal results make equal files.
    content = io.BytesIO()
    with warnings.catch_warnings():
        # A font without a name's letters draws boxes; that is no news for a terminal.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        FigureCanvasAgg(figure).print_png(content, metadata={"Software": None})
    return content.getvalue()
