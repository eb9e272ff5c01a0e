"""Line and column charts without scripts: SVG for lines and areas, HTML for text.

Each chart is drawn once. Lines and areas stretch with the available width, strokes and dots do not (`vector-effect`),
and the style sheet shows more axis labels on wide charts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

#: The number of tick labels of a wide x axis, and of a narrow one or of a y axis.
MAX_TICKS_WIDE, MAX_TICKS_NARROW = 10, 5
#: Values with a smaller relative difference are equal up to rounding.
_EQUAL = 1e-9


@dataclass(frozen=True)
class Axis:
    """A range of numbers on one axis of a chart.

    Attributes:
        low: the first value.
        high: the last value, above `low`.
        label: the name of the numbers; may be empty.
        integer: whether only integers are labelled.
    """

    low: float
    high: float
    label: str = ""
    integer: bool = False

    def position(self, value: float) -> float:
        """The relative position of a value, from 0 to 1.

        >>> Axis(10, 20).position(15)
        0.5
        """
        return (value - self.low) / (self.high - self.low)

    def ticks(self, limit: int) -> list[float]:
        """At most about `limit` round numbers of the range.

        >>> Axis(0, 1).ticks(5)
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        >>> Axis(0.5, 3.5, integer=True).ticks(10)
        [1.0, 2.0, 3.0]
        """
        step = self.step(limit)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(number * step, 12) for number in range(first, last + 1)]

    def step(self, limit: int) -> float:
        """The distance between ticks: 1, 2 or 5 times a power of ten."""
        step = round_step((self.high - self.low) / limit)
        return max(1.0, step) if self.integer else step

    def is_sparse(self, value: float) -> bool:
        """Whether a number of `ticks(MAX_TICKS_WIDE)` is also labelled on a narrow chart."""
        step = self.step(MAX_TICKS_WIDE)
        count = len(self.ticks(MAX_TICKS_WIDE))
        divisor = next(number for number in (1, 2, 5, 10) if count / number <= MAX_TICKS_NARROW + 1)
        return round(value / step) % divisor == 0

    def format(self, value: float, limit: int) -> str:
        """A value of `ticks(limit)` as a string, with the digits that the step needs."""
        return format_tick(value, self.step(limit))


def round_step(minimum: float) -> float:
    """The smallest of ..., 0.5, 1, 2, 5, 10, ... that is not below `minimum`.

    >>> round_step(0.13), round_step(3), round_step(5)
    (0.2, 5.0, 5.0)
    """
    power = 10.0 ** math.floor(math.log10(minimum))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= minimum * (1 - 1e-9))


def format_tick(value: float, step: float) -> str:
    """A tick value as a string, for ticks at distance `step`.

    >>> format_tick(0.5, 0.05), format_tick(20000, 5000), format_tick(2.5e6, 5e5), format_tick(3e-6, 1e-6)
    ('0.50', '20k', '2.5M', '3e-06')
    """
    if value == 0:
        return "0"
    for unit, size, least in (("G", 1e9, 1e9), ("M", 1e6, 1e6), ("k", 1e3, 1e4)):
        if abs(value) >= least and step >= size / 1000:
            return f"{value / size:g}{unit}"
    decimals = max(0, math.ceil(-math.log10(step) - 1e-9))
    return f"{value:g}" if decimals > 4 else f"{value:.{decimals}f}"


def fit_axis(
    values: Iterable[float], label: str = "", minimum: float | None = None, maximum: float | None = None
) -> Axis:
    """A vertical axis that covers all values, between round numbers.

    It begins at 0 if that needs at most half of its height. `minimum` and `maximum` bound it. Values that differ by
    rounding only count as equal, since no tick could distinguish them.

    >>> fit_axis([0.31, 0.88]).low, fit_axis([0.81, 0.88]).low
    (0.0, 0.8)
    >>> fit_axis([0.014329580348004094, 0.014329580348004096]).low
    0.0
    """
    all_values = list(values)
    low, high = min(all_values), max(all_values)
    if high - low <= _EQUAL * max(abs(low), abs(high)):
        low = high
    if 0 < low <= high / 2 or low == high > 0:
        low = 0.0
    elif low == high:
        low, high = low - 1, high + 1
    step = round_step((high - low) / MAX_TICKS_NARROW)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    low = low if minimum is None else max(low, minimum)
    return Axis(low, high if maximum is None else min(high, maximum), label)


Point = tuple[float, float]

#: The size of a chart in SVG units.
WIDTH, HEIGHT = 2000, 1000
#: Curves with more points have no dots.
MAX_DOTS = 40
#: Longer curves are thinned to about this many points.
MAX_POINTS = 400
#: More columns are drawn without gaps.
MAX_GAPS = 60
#: The fraction of a narrow chart's width that the label of a vertical line needs.
LABEL_WIDTH = 0.25


@dataclass(frozen=True)
class Curve:
    """A line through points.

    Attributes:
        name: the name in the legend.
        points: from left to right.
        colour: a class of the style sheet.
        dashed: whether the line is dashed.
        band: (low, high) around each point; may be empty.
        last: the last value as the legend shows it; may be empty.
    """

    name: str
    points: Sequence[Point]
    colour: str = "c0"
    dashed: bool = False
    band: Sequence[Point] = ()
    last: str = ""


@dataclass(frozen=True)
class Layer:
    """Columns of one colour; several layers are stacked."""

    name: str
    heights: Sequence[float]
    colour: str = "c0"


def curve_chart(
    title: str, curves: Sequence[Curve], x: Axis, y: Axis, tall: bool = False, marks: Sequence[tuple[float, str]] = ()
) -> str:
    """Curves over x, with a legend for more than one, and labelled vertical lines at `marks`."""
    drawn = [_vertical_line(position, x) for position, _ in marks]
    for curve in curves:
        if curve.band:
            lower = [(position, low) for (position, _), (low, _) in zip(curve.points, curve.band, strict=True)]
            upper = [(position, high) for (position, _), (_, high) in zip(curve.points, curve.band, strict=True)]
            drawn.append(
                _path(f"band {curve.colour}", _line_path([*thin_points(lower), *thin_points(upper)[::-1]], x, y) + "z")
            )
    for curve in curves:
        points = thin_points(curve.points)
        if len(points) > 1:
            dashed = " dashed" if curve.dashed else ""
            drawn.append(_path(f"line {curve.colour}{dashed}", _line_path(points, x, y)))
        if len(points) <= MAX_DOTS and not curve.dashed:
            drawn.append(_path(f"dots {curve.colour}", dot_path([_position(point, x, y) for point in points])))
    legend = [(curve.name, curve.colour, curve.dashed, curve.last) for curve in curves]
    return frame_chart(title, "".join(drawn), x, y, legend if len(legend) > 1 else [], tall, _mark_labels(marks, x))


def column_chart(
    title: str, edges: Sequence[float], layers: Sequence[Layer], x: Axis, y: Axis, over: Sequence[Curve] = ()
) -> str:
    """Stacked columns between the edges, with curves over them."""
    below = [0.0] * (len(edges) - 1)
    gaps = " apart" if len(below) <= MAX_GAPS else ""
    drawn = []
    for layer in layers:
        above = [low + height for low, height in zip(below, layer.heights, strict=True)]
        corners = "".join(
            _column(left, right, low, high, x, y)
            for left, right, low, high in zip(edges, edges[1:], below, above, strict=False)
            if high > low
        )
        drawn.append(_path(f"fill {layer.colour}{gaps}", corners))
        below = above
    for curve in over:
        dashed = " dashed" if curve.dashed else ""
        drawn.append(_path(f"line {curve.colour}{dashed}", _line_path(curve.points, x, y)))
    legend = [*((layer.name, layer.colour, False, "") for layer in layers)]
    legend += [(curve.name, curve.colour, curve.dashed, "") for curve in over]
    return frame_chart(title, "".join(drawn), x, y, legend if len(legend) > 1 else [])


def frame_chart(
    title: str,
    drawn: str,
    x: Axis,
    y: Axis,
    legend: Sequence[tuple[str, str, bool, str]] = (),
    tall: bool = False,
    notes: str = "",
) -> str:
    """The paths `drawn` in a frame of axes; the legend has (name, colour, dashed, last value)."""
    rows = y.ticks(MAX_TICKS_NARROW)
    grid = _path("grid", "".join(f"M0 {_y(value, y)}h{WIDTH}" for value in rows))
    texts = [y.format(value, MAX_TICKS_NARROW) for value in rows]
    y_labels = "".join(
        f'<span style="top:{_y(value, y) / HEIGHT:.1%}">{text}</span>' for value, text in zip(rows, texts, strict=True)
    )
    x_labels = "".join(
        f"<span{'' if x.is_sparse(value) else ' class=more'} "
        f'style="left:{100 * x.position(value):.1f}%">{x.format(value, MAX_TICKS_WIDE)}</span>'
        for value in x.ticks(MAX_TICKS_WIDE)
    )
    legend_items = "".join(
        f'<span class="{colour}"><i{" class=dashed" if dashed else ""}></i>{escape(name)}'
        f"{f' <b>{escape(last)}</b>' if last else ''}</span>"
        for name, colour, dashed, last in legend
    )
    return (
        f'<figure class="chart{" tall" if tall else ""}">'
        + (f'<figcaption class="legend">{legend_items}</figcaption>' if legend_items else "")
        + (f'<p class="up">{escape(y.label)}</p>' if y.label else "")
        + f'<div class="frame"><div class="ys"><b>{max(texts, key=len, default="")}</b>{y_labels}</div>'
        f'<div class="area"><svg role="img" aria-label="{escape(title)}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'preserveAspectRatio="none">{grid}{drawn}</svg>{notes}</div>'
        f'<div class="xs">{x_labels}</div>'
        + (f'<div class="unit">{escape(x.label)}</div>' if x.label else "")
        + "</div></figure>"
    )


def dot_path(positions: Sequence[tuple[int, int]]) -> str:
    """A path of dots: strokes of length 0 with round caps, which have the same size at any scale."""
    steps, last = [], (0, 0)
    for position in positions:
        # Relative steps have fewer digits than absolute positions.
        steps.append(f"m{position[0] - last[0]} {position[1] - last[1]}h0")
        last = position
    return "".join(steps).replace(" -", "-")


def thin_points(points: Sequence[Point], limit: int = MAX_POINTS) -> Sequence[Point]:
    """The points; of many, the minimum and the maximum of each interval, so that no peak is lost.

    >>> len(thin_points([(number, number % 7) for number in range(10_000)])) <= 402
    True
    """
    if len(points) <= limit:
        return points
    size = math.ceil(2 * len(points) / limit)
    kept = [points[0]]
    for start in range(0, len(points), size):
        part = points[start : start + size]
        ends = {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
        kept += sorted(ends)
    return [*kept, points[-1]]


def _path(classes: str, drawn: str) -> str:
    return f'<path class="{classes}" d="{drawn}"/>'


def _line_path(points: Sequence[Point], x: Axis, y: Axis) -> str:
    positions = [_position(point, x, y) for point in points]
    return ("M" + "L".join(f"{left} {top}" for left, top in positions)).replace(" -", "-")


def _column(left: float, right: float, low: float, high: float, x: Axis, y: Axis) -> str:
    start, end = round(WIDTH * x.position(left)), round(WIDTH * x.position(right))
    return f"M{start} {_y(low, y)}V{_y(high, y)}H{end}V{_y(low, y)}z"


def _vertical_line(value: float, x: Axis) -> str:
    return _path("mark", f"M{round(WIDTH * x.position(value))} 0V{HEIGHT}")


def _mark_labels(marks: Sequence[tuple[float, str]], x: Axis) -> str:
    """The labels of vertical lines: left of the line, or right of it at the left edge.

    A label that would overlap the one before it on a narrow chart is omitted.
    """
    labels, occupied = [], 0.0
    for position, name in [(x.position(value), name) for value, name in marks]:
        if position - LABEL_WIDTH >= occupied:
            labels.append(f'<span class="note" style="left:{position:.1%}">{escape(name)}</span>')
            occupied = position
        elif occupied <= position <= 1 - LABEL_WIDTH:
            labels.append(f'<span class="note after" style="left:{position:.1%}">{escape(name)}</span>')
            occupied = position + LABEL_WIDTH
    return "".join(labels)


def _position(point: Point, x: Axis, y: Axis) -> tuple[int, int]:
    return round(WIDTH * x.position(point[0])), _y(point[1], y)


def _y(value: float, y: Axis) -> int:
    return round(HEIGHT * (1 - y.position(value)))
