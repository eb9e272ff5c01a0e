"""Charts that the browser lays out: SVG for what may stretch, HTML for text, which keeps its size at any width.

Each chart is drawn once. Its lines and areas stretch with the room that it gets, strokes and dots do not
(`vector-effect`), and the style sheet shows more of the numbers on the axes where the chart is wide. No script.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from .axes import MOST_NARROW, MOST_WIDE, Axis

Point = tuple[float, float]

#: The inner units of a chart, whatever its size on the screen.
WIDTH, HEIGHT = 2000, 1000
#: More points than these are drawn as a line without dots.
MOST_DOTS = 40
#: Longer curves are thinned to about so many points, which no screen could tell apart.
MOST_POINTS = 400
#: More columns than these are drawn without gaps.
MOST_GAPS = 60
#: The share of a narrow chart's width that the name of an upright line takes.
NOTE = 0.25


@dataclass(frozen=True)
class Curve:
    """A line through points.

    Attributes:
        name: in the legend.
        points: from left to right.
        colour: a class of the style sheet.
        dashed: drawn so.
        band: what lies around the points, (low, high) for each; may be empty.
        last: what the legend tells of the curve's end; may be empty.
    """

    name: str
    points: Sequence[Point]
    colour: str = "c0"
    dashed: bool = False
    band: Sequence[Point] = ()
    last: str = ""


@dataclass(frozen=True)
class Layer:
    """Columns of one colour; several layers stand on one another."""

    name: str
    heights: Sequence[float]
    colour: str = "c0"


def curve_chart(
    title: str, curves: Sequence[Curve], x: Axis, y: Axis, tall: bool = False, marks: Sequence[tuple[float, str]] = ()
) -> str:
    """Curves over x, with a legend where there is more than one, and upright lines at `marks`, each with its name."""
    drawn = [_upright(place, x) for place, _ in marks]
    for curve in curves:
        if curve.band:
            sides = [(place, low) for (place, _), (low, _) in zip(curve.points, curve.band, strict=True)]
            back = [(place, high) for (place, _), (_, high) in zip(curve.points, curve.band, strict=True)]
            drawn.append(_path(f"band {curve.colour}", _joined([*thinned(sides), *thinned(back)[::-1]], x, y) + "z"))
    for curve in curves:
        points = thinned(curve.points)
        if len(points) > 1:
            dashed = " dashed" if curve.dashed else ""
            drawn.append(_path(f"line {curve.colour}{dashed}", _joined(points, x, y)))
        if len(points) <= MOST_DOTS and not curve.dashed:
            drawn.append(_path(f"dots {curve.colour}", dots([_place(point, x, y) for point in points])))
    legend = [(curve.name, curve.colour, curve.dashed, curve.last) for curve in curves]
    return framed(title, "".join(drawn), x, y, legend if len(legend) > 1 else [], tall, _notes(marks, x))


def column_chart(
    title: str, edges: Sequence[float], layers: Sequence[Layer], x: Axis, y: Axis, over: Sequence[Curve] = ()
) -> str:
    """Columns between the edges, one layer on another, with curves over them."""
    below = [0.0] * (len(edges) - 1)
    apart = " apart" if len(below) <= MOST_GAPS else ""
    drawn = []
    for layer in layers:
        above = [low + height for low, height in zip(below, layer.heights, strict=True)]
        corners = "".join(
            _column(left, right, low, high, x, y)
            for left, right, low, high in zip(edges, edges[1:], below, above, strict=False)
            if high > low
        )
        drawn.append(_path(f"fill {layer.colour}{apart}", corners))
        below = above
    for curve in over:
        dashed = " dashed" if curve.dashed else ""
        drawn.append(_path(f"line {curve.colour}{dashed}", _joined(curve.points, x, y)))
    named = [*((layer.name, layer.colour, False, "") for layer in layers)]
    named += [(curve.name, curve.colour, curve.dashed, "") for curve in over]
    return framed(title, "".join(drawn), x, y, named if len(named) > 1 else [])


def framed(
    title: str,
    drawn: str,
    x: Axis,
    y: Axis,
    legend: Sequence[tuple[str, str, bool, str]] = (),
    tall: bool = False,
    notes: str = "",
) -> str:
    """What was drawn, in a frame of axes; the legend as (name, colour, dashed, last value)."""
    rows = y.ticks(MOST_NARROW)
    grid = _path("grid", "".join(f"M0 {_y(value, y)}h{WIDTH}" for value in rows))
    texts = [y.written(value, MOST_NARROW) for value in rows]
    beside = "".join(
        f'<span style="top:{_y(value, y) / HEIGHT:.1%}">{text}</span>' for value, text in zip(rows, texts, strict=True)
    )
    under = "".join(
        f"<span{'' if x.is_sparse(value) else ' class=more'} "
        f'style="left:{100 * x.share(value):.1f}%">{x.written(value, MOST_WIDE)}</span>'
        for value in x.ticks(MOST_WIDE)
    )
    named = "".join(
        f'<span class="{colour}"><i{" class=dashed" if dashed else ""}></i>{escape(name)}'
        f"{f' <b>{escape(last)}</b>' if last else ''}</span>"
        for name, colour, dashed, last in legend
    )
    return (
        f'<figure class="chart{" tall" if tall else ""}">'
        + (f'<figcaption class="legend">{named}</figcaption>' if named else "")
        + (f'<p class="up">{escape(y.label)}</p>' if y.label else "")
        + f'<div class="frame"><div class="ys"><b>{max(texts, key=len, default="")}</b>{beside}</div>'
        f'<div class="area"><svg role="img" aria-label="{escape(title)}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'preserveAspectRatio="none">{grid}{drawn}</svg>{notes}</div>'
        f'<div class="xs">{under}</div>'
        + (f'<div class="unit">{escape(x.label)}</div>' if x.label else "")
        + "</div></figure>"
    )


def dots(places: Sequence[tuple[int, int]]) -> str:
    """A path of dots: strokes without length, round because of their caps, of the same size at any scale."""
    text, at = [], (0, 0)
    for place in places:
        # Steps from one dot to the next: fewer digits than places.
        text.append(f"m{place[0] - at[0]} {place[1] - at[1]}h0")
        at = place
    return "".join(text).replace(" -", "-")


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> Sequence[Point]:
    """The points, or of many those at the top and the bottom of each stretch, so that no peak is lost.

    >>> len(thinned([(number, number % 7) for number in range(10_000)])) <= 402
    True
    """
    if len(points) <= most:
        return points
    size = math.ceil(2 * len(points) / most)
    kept = [points[0]]
    for start in range(0, len(points), size):
        part = points[start : start + size]
        ends = {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
        kept += sorted(ends)
    return [*kept, points[-1]]


def _path(classes: str, drawn: str) -> str:
    return f'<path class="{classes}" d="{drawn}"/>'


def _joined(points: Sequence[Point], x: Axis, y: Axis) -> str:
    places = [_place(point, x, y) for point in points]
    return ("M" + "L".join(f"{left} {top}" for left, top in places)).replace(" -", "-")


def _column(left: float, right: float, low: float, high: float, x: Axis, y: Axis) -> str:
    start, end = round(WIDTH * x.share(left)), round(WIDTH * x.share(right))
    return f"M{start} {_y(low, y)}V{_y(high, y)}H{end}V{_y(low, y)}z"


def _upright(place: float, x: Axis) -> str:
    return _path("mark", f"M{round(WIDTH * x.share(place))} 0V{HEIGHT}")


def _notes(marks: Sequence[tuple[float, str]], x: Axis) -> str:
    """The names of upright lines: left of the line, or right of it where the frame begins.

    On a narrow chart two names would cover one another: the later line goes without.
    """
    notes, taken = [], 0.0
    for share, name in [(x.share(place), name) for place, name in marks]:
        if share - NOTE >= taken:
            notes.append(f'<span class="note" style="left:{share:.1%}">{escape(name)}</span>')
            taken = share
        elif taken <= share <= 1 - NOTE:
            notes.append(f'<span class="note after" style="left:{share:.1%}">{escape(name)}</span>')
            taken = share + NOTE
    return "".join(notes)


def _place(point: Point, x: Axis, y: Axis) -> tuple[int, int]:
    return round(WIDTH * x.share(point[0])), _y(point[1], y)


def _y(value: float, y: Axis) -> int:
    return round(HEIGHT * (1 - y.share(value)))
