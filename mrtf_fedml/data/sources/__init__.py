"""Where samples come from: one file a dataset or format, each a function from settings to a `Source`."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from ...errors import UserError, nearest
from ...settings import DataSettings
from ..listing import listed
from .checks import checked_source
from .cifar import load_cifar10, load_cifar100
from .csv_table import load_csv
from .digits import load_digits
from .femnist import load_femnist
from .idx import load_fashion_mnist, load_mnist
from .images import load_images
from .mnistm import load_mnistm
from .npz import load_npz
from .shakespeare import load_shakespeare
from .source import Source, Users
from .svhn import load_svhn
from .usps import load_usps

__all__ = ["SOURCES", "Source", "Users", "checked_source", "load_source"]

logger = logging.getLogger("mrtf_fedml")

#: Every word that `data_args.dataset` may be.
SOURCES: dict[str, Callable[[DataSettings], Source]] = {
    "mnist": load_mnist,
    "mnistm": load_mnistm,
    "svhn": load_svhn,
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "femnist": load_femnist,
    "shakespeare": load_shakespeare,
    "fashion_mnist": load_fashion_mnist,
    "usps": load_usps,
    "digits": load_digits,
    "npz": load_npz,
    "images": load_images,
    "csv": load_csv,
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
