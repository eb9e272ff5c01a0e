"""Fetching files, from the addresses and with the checksums that torchvision knows."""

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

#: A server that says nothing for so many seconds is given up.
TIMEOUT = 30.0


@dataclass(frozen=True)
class Download:
    """A file, where it goes in the data's folder, and the addresses that may have it."""

    path: str
    addresses: Sequence[str]
    md5: str


def downloads(dataset: str) -> list[Download]:
    """The files of a dataset that torchvision knows; none for others."""
    # Imported here: torchvision takes seconds, and most runs fetch nothing.
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


def fetch(dataset: str, folder: Path) -> None:
    """Put the files of `dataset` into `folder`; a `UserError` says why where that fails."""
    files = downloads(dataset)
    if not files:
        raise UserError(f"{dataset} cannot be downloaded through torchvision")
    for file in files:
        target = folder / file.path
        if not target.exists():
            logger.info("fetching %s", target)
            _fetch(file, target)


def _fetch(file: Download, target: Path) -> None:
    from torchvision.datasets.utils import download_url

    failures: list[str] = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside the target and renamed when whole, since several processes of one run may fetch at once.
        with TemporaryDirectory(dir=target.parent) as workshop, _timeout(TIMEOUT):
            for address in file.addresses:
                try:
                    download_url(address, workshop, target.name, file.md5)
                except (OSError, RuntimeError) as error:
                    failures.append(f"{address}: {error}")
                    continue
                os.replace(Path(workshop) / target.name, target)
                return
    except OSError as error:
        raise UserError(f"{str(target)!r} cannot be written ({error.strerror or error})") from error
    raise UserError(f"{target.name} could not be downloaded ({failures[0].splitlines()[0]})")


@contextmanager
def _timeout(seconds: float) -> Iterator[None]:
    """Torchvision passes no timeout to urllib, which then waits for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
