"""Where samples come from: one file per dataset or format, each a function from settings to a `Source`."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import UserError, nearest
from ...settings import DataSettings
from .checks import checked_source
from .cifar import load_cifar10, load_cifar100
from .csv_table import load_csv
from .digits import load_digits
from .doubts import tell_doubts
from .femnist import load_femnist
from .idx import load_fashion_mnist, load_mnist
from .images import load_images
from .mnistm import load_mnistm
from .npz import load_npz
from .shakespeare import load_shakespeare
from .source import Source, Users
from .svhn import load_svhn
from .usps import load_usps

__all__ = ["SOURCES", "Source", "Users", "checked_source", "load_source", "named_source"]

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

#: Those that read a user's own files.
OWN = ("npz", "csv", "images")


def load_source(settings: DataSettings) -> Source:
    """The samples that `data_args.dataset` names.

    >>> load_source(DataSettings(dataset="digits")).x_test.shape
    (599, 8, 8)
    """
    if settings.dataset == "arrays":
        raise UserError("data_args.dataset is arrays: the data were in the program that called mrtf_fedml.label()")
    if settings.dataset not in SOURCES:
        raise UserError(
            f"data_args.dataset is {settings.dataset!r}, which is no dataset; "
            + nearest(settings.dataset, list(SOURCES))
        )
    source = SOURCES[settings.dataset](settings)
    tell_doubts(source, is_own=settings.dataset in OWN)
    return source


def named_source(data: DataSettings) -> Source:
    """What `data_args.dataset` names; a file beside it that it would never open is an error.

    The labels of another dataset, given without a word, look like an answer.
    """
    other = data.server_dataset
    unread = {
        "data_file": data.dataset not in OWN and other != "npz",
        "server_file": data.dataset not in ("csv", "images") and other is None,
    }
    for key, is_unread in unread.items():
        if is_unread and getattr(data, key) is not None:
            kinds = "npz, csv or images" if key == "data_file" else "csv or images, or name data_args.server_dataset"
            raise UserError(
                f"data_args.{key} is {getattr(data, key)!r} but data_args.dataset is {data.dataset!r}, which does not "
                f"read it; set data_args.dataset to {kinds}, or leave {key} out"
            )
    return load_source(data)
