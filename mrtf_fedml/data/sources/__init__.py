"""Where samples come from: one file a dataset or format, each a function from settings to a `Source`."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from ...errors import UserError, nearest
from ...settings import DataSettings
from ..listing import listed
from .checks import checked_source
from .digits import load_digits
from .npz import load_npz
from .source import Source

__all__ = ["SOURCES", "Source", "checked_source", "load_source"]

logger = logging.getLogger("mrtf_fedml")

#: Every word that `data_args.dataset` may be.
SOURCES: dict[str, Callable[[DataSettings], Source]] = {
    "digits": load_digits,
    "npz": load_npz,
}


def load_source(settings: DataSettings) -> Source:
    """The samples that `data_args.dataset` names.

    >>> load_source(DataSettings(dataset="digits")).x_test.shape
    (599, 8, 8)
    """
    if settings.dataset not in SOURCES:
        raise UserError(
            f"data_args.dataset is {settings.dataset!r}, which is no dataset; "
            + nearest(settings.dataset, list(SOURCES))
        )
    source = SOURCES[settings.dataset](settings)
    counts = np.bincount(source.y_train, minlength=source.class_num)
    absent = [source.class_names[index] for index in np.flatnonzero(counts == 0)]
    if absent:
        logger.warning("%s: no training sample of class %s; no client can learn it", source.name, listed(absent))
    return source
