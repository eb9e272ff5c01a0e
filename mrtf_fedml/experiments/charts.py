"""The charts of a comparison's page, which follow the reader's screen and theme; `figures` draws the files."""

from __future__ import annotations

from collections.abc import Sequence

from ..report.axes import Axis, around
from ..report.classes import class_bars
from ..report.plot import Curve, curve_chart
from .scores import Row, Spread

#: Colours of the style sheet; more curves than these repeat them, dotted.
COLOURS = 10


def curves(rows: Sequence[Row]) -> str:
    """Accuracy over rounds: the mean over seeds, and one standard deviation either side of it."""
    drawn = [
        Curve(
            row.label,
            [(number, value.mean) for number, value in row.curve],
            f"c{place % COLOURS}",
            dashed=place >= COLOURS,
            band=[_around(value) for _, value in row.curve] if row.seeds > 1 else (),
            last=f"{row.final.mean:.3f}",
        )
        for place, row in enumerate(rows)
    ]
    values = [value for curve in drawn for _, value in curve.points]
    values += [side for curve in drawn for pair in curve.band for side in pair]
    last = max(number for curve in drawn for number, _ in curve.points)
    x = Axis(0.5, last + 0.5, "round", integer=True)
    return curve_chart("Accuracy over rounds", drawn, x, around(values, "accuracy"), tall=True)


def bars(rows: Sequence[Row]) -> str:
    """The final accuracy of each, as the paper draws its ablation; the bars begin at 0."""
    texts = [_text(row.final) for row in rows]
    return class_bars("Final accuracy", [row.label for row in rows], [row.final.mean for row in rows], texts, 1.0)


def _around(value: Spread) -> tuple[float, float]:
    spread = value.deviation or 0.0
    return value.mean - spread, value.mean + spread


def _text(value: Spread) -> str:
    return f"{value.mean:.3f}" + ("" if value.deviation is None else f" ± {value.deviation:.3f}")
