"""Downloads of datasets, with the addresses and checksums of torchvision."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ...errors import UserError

logger = logging.getLogger("mrtf_fedml")

#: Seconds without data after which a server is given up.
TIMEOUT = 30.0


@dataclass(frozen=True)
class Download:
    """A file: its path in the cache folder, its possible addresses and its checksum."""

    path: str
    addresses: Sequence[str]
    md5: str


def list_downloads(dataset: str) -> list[Download]:
    """The files of a dataset that torchvision can download; empty for others."""
    # Imported here: torchvision takes seconds to import, and most runs download nothing.
    from torchvision import datasets

    if dataset in ("mnist", "fashion_mnist"):
        mnist = datasets.MNIST if dataset == "mnist" else datasets.FashionMNIST
        folder = f"{mnist.__name__}/raw/"
        return [
            Download(folder + name, [mirror + name for mirror in mnist.mirrors], md5) for name, md5 in mnist.resources
        ]
    if dataset in ("cifar10", "cifar100"):
        cifar = datasets.CIFAR10 if dataset == "cifar10" else datasets.CIFAR100
        return [Download(cifar.filename, [cifar.url], cifar.tgz_md5)]
    if dataset in ("svhn", "usps"):
        split_list = (datasets.SVHN if dataset == "svhn" else datasets.USPS).split_list
        return [Download(name, [url], md5) for url, name, md5 in (split_list[part] for part in ("train", "test"))]
    return []


def download_dataset(dataset: str, folder: Path) -> None:
    """Download the files of `dataset` into `folder`; raises a `UserError` with the reason if that fails."""
    files = list_downloads(dataset)
    if not files:
        raise UserError(f"{dataset} cannot be downloaded through torchvision")
    for file in files:
        target = folder / file.path
        if not target.exists():
            logger.info("downloading %s", target)
            _download(file, target)


def _download(file: Download, target: Path) -> None:
    from torchvision.datasets.utils import download_url

    failures: list[str] = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Into a temporary folder, and renamed when complete, since several processes of one run may download at once.
        with TemporaryDirectory(dir=target.parent) as temporary, _socket_timeout(TIMEOUT):
            for address in file.addresses:
                try:
                    download_url(address, temporary, target.name, file.md5)
                except (OSError, RuntimeError) as error:
                    failures.append(f"{address}: {error}")
                    continue
                os.replace(Path(temporary) / target.name, target)
                return
    except OSError as error:
        raise UserError(f"{str(target)!r} cannot be written ({error.strerror or error})") from error
    raise UserError(f"{target.name} could not be downloaded ({failures[0].splitlines()[0]})")


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """Set the default timeout: torchvision passes none to urllib, which would wait for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
