"""Fewer samples than there are, for a quick look."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import UserError

#: Its multiples, without what is before the point, spread evenly over 0 to 1 and never come again.
_GOLDEN = (5**0.5 - 1) / 2


def evenly_spaced(key: str, wanted: int, there: int, too_few: str) -> npt.NDArray[np.int64]:
    """The rows of `wanted` of the samples. It needs no seed, reads no label, and a file sorted by class keeps them all.

    Args:
        key: of `data_args`, which asks for so many.
        wanted: how many.
        there: of how many.
        too_few: what is said where they are fewer.

    >>> evenly_spaced("server_samples", wanted=3, there=9, too_few="")
    array([0, 3, 6])
    """
    if wanted > there:
        raise UserError(f"data_args.{key} is {wanted} but {too_few}; lower it or leave it out")
    return np.arange(wanted) * there // wanted


def without_period(wanted: int, there: int) -> npt.NDArray[np.int64]:
    """The rows of `wanted` of the samples, one of each of as many equal stretches, at no period.

    >>> without_period(wanted=4, there=40)
    array([ 6, 12, 28, 34])
    """
    starts, ends = (np.arange(first, first + wanted) * there // wanted for first in (0, 1))
    places = np.arange(1, wanted + 1) * _GOLDEN % 1
    return starts + (places * (ends - starts)).astype(np.int64)
