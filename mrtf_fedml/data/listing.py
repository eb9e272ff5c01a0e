"""How messages name several things at once."""

from __future__ import annotations

from collections.abc import Iterable


def listed(things: Iterable[object], most: int = 10) -> str:
    """The things in a row, the first `most` of them by name and the rest by number.

    >>> listed([3, 5])
    '3, 5'
    >>> listed(range(12), most=2)
    '0, 1 and 10 more'
    """
    names = [str(thing) for thing in things]
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
