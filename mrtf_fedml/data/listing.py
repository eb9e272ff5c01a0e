"""How messages name several things at once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from .names import SHOWN, printable


def listed(things: Iterable[object], most: int = 10) -> str:
    """The things in a row, the first `most` of them by name and the rest by number.

    Names that others chose may end a line or have no end; here they do neither.

    >>> listed([3, 5])
    '3, 5'
    >>> listed(range(12), most=2)
    '0, 1 and 10 more'
    """
    rest = iter(things)
    names = [_short(str(thing)) for thing in islice(rest, most)]
    left = sum(1 for _ in rest)
    return ", ".join(names) + (f" and {left} more" if left else "")


def _short(name: str) -> str:
    return printable(name if len(name) <= SHOWN else name[:SHOWN] + "...")
