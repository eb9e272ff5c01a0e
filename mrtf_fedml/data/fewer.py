"""Fewer samples than there are, for a quick look."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import UserError


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
