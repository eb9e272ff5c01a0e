"""Sources of samples: one module per dataset or format, each with a function from settings to a `Source`."""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np

from ...config import DataSettings
from ...errors import UserError, suggest_name
from ..formatting import format_list
from .cifar import load_cifar10, load_cifar100
from .csv_files import load_csv
from .digits import load_digits
from .idx import load_fashion_mnist, load_mnist
from .images import load_images
from .leaf import load_femnist, load_shakespeare
from .mnistm import load_mnistm
from .npz import load_npz
from .source import Source, Users, make_source
from .svhn import load_svhn
from .usps import load_usps

__all__ = ["SOURCES", "Source", "Users", "load_run_source", "load_source", "make_source"]

logger = logging.getLogger("mrtf_fedml")

#: The values of `data_args.dataset`.
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

#: Those that read the user's own files.
USER_FORMATS = ("npz", "csv", "images")


def load_source(settings: DataSettings) -> Source:
    """The samples of `data_args.dataset`.

    >>> load_source(DataSettings(dataset="digits")).x_test.shape
    (599, 8, 8)
    """
    if settings.dataset == "arrays":
        raise UserError("data_args.dataset is arrays: the data were in the program that called mrtf_fedml.label()")
    if settings.dataset not in SOURCES:
        raise UserError(
            f"data_args.dataset is {settings.dataset!r}, which is not a dataset; "
            + suggest_name(settings.dataset, list(SOURCES))
        )
    source = SOURCES[settings.dataset](settings)
    _warn_about_source(source, is_user_data=settings.dataset in USER_FORMATS)
    return source


def load_run_source(data: DataSettings) -> Source:
    """The samples of `data_args.dataset`; an error if a file is named that this dataset does not read.

    Otherwise a run would label the samples of another dataset without a warning.
    """
    is_unused = {
        "data_file": data.dataset not in USER_FORMATS and data.server_dataset != "npz",
        "server_file": data.dataset not in ("csv", "images") and data.server_dataset is None,
    }
    for key, unused in is_unused.items():
        if unused and getattr(data, key) is not None:
            kinds = "npz, csv or images" if key == "data_file" else "csv or images, or set data_args.server_dataset"
            raise UserError(
                f"data_args.{key} is {getattr(data, key)!r} but data_args.dataset is {data.dataset!r}, which does not "
                f"read it; set data_args.dataset to {kinds}, or leave {key} out"
            )
    return load_source(data)


def _warn_about_source(source: Source, is_user_data: bool) -> None:
    """Log classes without samples; in user data also class names and ids that look like duplicates."""
    counts = np.bincount(source.y_train, minlength=source.class_num)
    absent = [source.class_names[index] for index in np.flatnonzero(counts == 0)]
    if absent:
        logger.warning("%s: no training sample of class %s; no client can learn it", source.name, format_list(absent))
    # Upper-case and lower-case letters are separate classes.
    if not is_user_data or source.tokens:
        return
    for names in _similar_names(source.class_names):
        logger.warning(
            "%s: the classes %s differ only in case, spaces or symbols, and are different classes; if they are one "
            "class, write it in one way",
            source.name,
            format_list(repr(name) for name in names),
        )
    duplicates = [name for name, count in Counter(source.ids).items() if count > 1]
    if duplicates:
        logger.warning(
            "%s: the id %s occurs more than once in the server's samples; predictions.csv has the samples in the order "
            "of the data",
            source.name,
            format_list(repr(name) for name in duplicates),
        )


def _similar_names(class_names: list[str]) -> list[list[str]]:
    """Names of several letters that are equal up to case, spaces and Unicode compatibility.

    >>> _similar_names(["cat", "Cat ", "dog", "a", "A"])
    [['cat', 'Cat ']]
    """
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in class_names:
        groups["".join(unicodedata.normalize("NFKC", name).casefold().split())].append(name)
    return [names for key, names in groups.items() if len(names) > 1 and len(key) > 1]
