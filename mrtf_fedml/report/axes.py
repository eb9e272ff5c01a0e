"""The axes of a chart: where the numbers stand and how they are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

#: So many numbers stand under a wide chart; under a narrow one, or beside any, about half as many.
MOST_WIDE, MOST_NARROW = 10, 5
#: Values nearer to each other than this share of them differ by rounding.
_ONE_VALUE = 1e-9


@dataclass(frozen=True)
class Axis:
    """A range of numbers.

    Attributes:
        low: where it begins.
        high: where it ends, above `low`.
        label: what the numbers are; may be empty.
        integer: whether only whole numbers are written.
    """

    low: float
    high: float
    label: str = ""
    integer: bool = False

    def share(self, value: float) -> float:
        """How far along the axis a value lies, from 0 to 1.

        >>> Axis(10, 20).share(15)
        0.5
        """
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[float]:
        """At most about `most` round numbers of the range.

        >>> Axis(0, 1).ticks(5)
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        >>> Axis(0.5, 3.5, integer=True).ticks(10)
        [1.0, 2.0, 3.0]
        """
        step = self.step(most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(number * step, 12) for number in range(first, last + 1)]

    def step(self, most: int) -> float:
        """The distance between the numbers: one, two or five of some power of ten."""
        step = round_step((self.high - self.low) / most)
        return max(1.0, step) if self.integer else step

    def is_sparse(self, value: float) -> bool:
        """Whether a number of `ticks(MOST_WIDE)` is one of the few that fit a narrow chart too."""
        step = self.step(MOST_WIDE)
        count = len(self.ticks(MOST_WIDE))
        every = next(number for number in (1, 2, 5, 10) if count / number <= MOST_NARROW + 1)
        return round(value / step) % every == 0

    def written(self, value: float, most: int) -> str:
        """A number of `ticks(most)`, with no more digits than its neighbours need."""
        return written(value, self.step(most))


def round_step(least: float) -> float:
    """The smallest of ..., 0.5, 1, 2, 5, 10, ... that is not below `least`.

    >>> round_step(0.13), round_step(3), round_step(5)
    (0.2, 5.0, 5.0)
    """
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * (1 - 1e-9))


def written(value: float, step: float) -> str:
    """A number of an axis whose numbers lie `step` apart.

    >>> written(0.5, 0.05), written(20000, 5000), written(2.5e6, 5e5), written(3e-6, 1e-6)
    ('0.50', '20k', '2.5M', '3e-06')
    """
    if value == 0:
        return "0"
    for unit, size, least in (("G", 1e9, 1e9), ("M", 1e6, 1e6), ("k", 1e3, 1e4)):
        if abs(value) >= least and step >= size / 1000:
            return f"{value / size:g}{unit}"
    decimals = max(0, math.ceil(-math.log10(step) - 1e-9))
    return f"{value:g}" if decimals > 4 else f"{value:.{decimals}f}"


def around(values: Iterable[float], label: str = "", least: float | None = None, most: float | None = None) -> Axis:
    """A vertical axis on which all the values can be seen, from one round number to another.

    It begins at 0 where that costs no more than half of its height. `least` and `most` bound it. Values that differ by
    rounding alone are one value: no step between them could be written.

    >>> around([0.31, 0.88]).low, around([0.81, 0.88]).low
    (0.0, 0.8)
    >>> around([0.014329580348004094, 0.014329580348004096]).low
    0.0
    """
    given = list(values)
    low, high = min(given), max(given)
    if high - low <= _ONE_VALUE * max(abs(low), abs(high)):
        low = high
    if 0 < low <= high / 2 or low == high > 0:
        low = 0.0
    elif low == high:
        low, high = low - 1, high + 1
    step = round_step((high - low) / MOST_NARROW)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    low = low if least is None else max(low, least)
    return Axis(low, high if most is None else min(high, most), label)
