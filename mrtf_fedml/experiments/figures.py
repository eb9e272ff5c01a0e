"""The figures of a comparison: PNG files, and charts for its page that follow the reader's screen and theme."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..report.charts import class_bars
from ..report.plot import Axis, Curve, curve_chart, fit_axis
from .scores import AlgorithmScore, MeanStd

#: Colours that the colour-blind can distinguish (Okabe and Ito).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a8a8a")


def draw_curves(rows: Sequence[AlgorithmScore], title: str) -> bytes:
    """Accuracy over rounds: the mean over seeds with a band of one standard deviation."""
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, row in enumerate(rows):
        colour = _COLOURS[number % len(_COLOURS)]
        style = "-" if number < len(_COLOURS) else "--"
        rounds = [step for step, _ in row.curve]
        means = [value.mean for _, value in row.curve]
        spreads = [value.std or 0.0 for _, value in row.curve]
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


def draw_bars(rows: Sequence[AlgorithmScore], title: str) -> bytes:
    """The final accuracies with standard deviations as bars, like the ablation of the paper, as PNG."""
    figure = Figure(figsize=(6.5, 4.0), layout="constrained")
    axes = figure.subplots()
    means = [row.final.mean for row in rows]
    spreads = [row.final.std or 0.0 for row in rows]
    drawn = axes.bar(
        [row.label for row in rows],
        means,
        yerr=spreads if any(spreads) else None,
        color=[_COLOURS[number % len(_COLOURS)] for number in range(len(rows))],
        capsize=4,
        width=0.65,
    )
    axes.bar_label(drawn, labels=[f"{mean:.3f}" for mean in means], padding=3)
    # The differences are small: the axis starts below the lowest bar, and its label says so.
    lowest = min(mean - spread for mean, spread in zip(means, spreads, strict=True))
    highest = max(mean + spread for mean, spread in zip(means, spreads, strict=True))
    bottom = max(0.0, lowest - (highest - lowest) - 0.02)
    axes.set_ylim(bottom, min(1.05, highest + 0.3 * (highest - lowest) + 0.02))
    axes.set_ylabel("final accuracy (axis cut)" if bottom > 0 else "final accuracy")
    axes.set_title(title)
    return _png(figure)


def _png(figure: Figure) -> bytes:
    # No pyplot: the calling program may use it. No date: equal results give equal files.
    content = io.BytesIO()
    with warnings.catch_warnings():
        # A font without a letter draws a box; the warning does not help the user.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        FigureCanvasAgg(figure).print_png(content, metadata={"Software": None})
    return content.getvalue()


#: Number of colours in the style sheet; further curves repeat them, dashed.
CHART_COLOURS = 10


def curves_chart(rows: Sequence[AlgorithmScore]) -> str:
    """Accuracy over rounds: the mean over seeds with a band of one standard deviation."""
    drawn = [
        Curve(
            row.label,
            [(number, value.mean) for number, value in row.curve],
            f"c{place % CHART_COLOURS}",
            dashed=place >= CHART_COLOURS,
            band=[_band(value) for _, value in row.curve] if row.seeds > 1 else (),
            last=f"{row.final.mean:.3f}",
        )
        for place, row in enumerate(rows)
    ]
    values = [value for curve in drawn for _, value in curve.points]
    values += [side for curve in drawn for pair in curve.band for side in pair]
    last = max(number for curve in drawn for number, _ in curve.points)
    x = Axis(0.5, last + 0.5, "round", integer=True)
    return curve_chart("Accuracy over rounds", drawn, x, fit_axis(values, "accuracy"), tall=True)


def bars_chart(rows: Sequence[AlgorithmScore]) -> str:
    """The final accuracies as bars that start at 0, for the page."""
    texts = [_format_value(row.final) for row in rows]
    return class_bars("Final accuracy", [row.label for row in rows], [row.final.mean for row in rows], texts, 1.0)


def _band(value: MeanStd) -> tuple[float, float]:
    spread = value.std or 0.0
    return value.mean - spread, value.mean + spread


def _format_value(value: MeanStd) -> str:
    return f"{value.mean:.3f}" + ("" if value.std is None else f" ± {value.std:.3f}")
