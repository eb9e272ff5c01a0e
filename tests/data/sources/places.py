"""One small valid dataset per file that a reader opens, and the path of that file."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from mrtf_fedml.config import DataSettings
from mrtf_fedml.data import Source, load_source
from mrtf_fedml.errors import UserError
from tests.data.sources.formats import (
    letters,
    random_images,
    write_cifar10,
    write_cifar100_archive,
    write_image,
    write_leaf,
    write_mnist,
    write_svhn,
    write_usps,
)

SPEECH = "Now is the winter of our discontent Made glorious summer by this sun of York; And all"

#: Far above what the small datasets take, and far below what a bomb does.
MEGABYTES = 50


@dataclass(frozen=True)
class Place:
    """A dataset, how its files are written into a folder, and the one among them that is tried."""

    dataset: str
    write: Callable[[Path], Any]
    file: str
    #: Settings that name files, relative to the folder.
    files: dict[str, str] = field(default_factory=dict)

    def settings(self, folder: Path) -> DataSettings:
        named = {key: str(folder / name) for key, name in self.files.items()}
        return DataSettings(dataset=self.dataset, data_cache_dir=str(folder), max_memory_mb=MEGABYTES, **named)

    def outcome(self, folder: Path) -> Source | str:
        """The samples, or the one-line error message; anything else is a fault."""
        try:
            return load_source(self.settings(folder))
        except UserError as error:
            message = str(error)
            assert "\n" not in message, message
            assert len(message) < 1000, message[:2000]
            message.encode()
            return message


def _npz(folder: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    names = {"class_names": ["no", "yes"], "ids": ["a", "b"], "u_train": list("ababab")}
    np.savez_compressed(folder / "own.npz", x_train=x, y_train=np.arange(6) % 2, x_test=x[:2], y_test=[0, 1], **names)


def _csv(folder: Path) -> None:
    (folder / "clients.csv").write_text("age,weight,label\n0.5,1.5,ill\n-0.25,2e-1,well\n1,0,ill\n")
    (folder / "server.csv").write_text("id,weight,age\nrow-7,3,4\nrow-8,5,6\n")


def _csv_labelled(folder: Path) -> None:
    _csv(folder)
    (folder / "server.csv").write_text("id,weight,age,label\nrow-7,3,4,ill\nrow-8,5,6,well\n")


def _images(folder: Path) -> None:
    for name in ("cat", "dog"):
        for number in range(2):
            write_image(folder / "clients" / name / f"{number}.png", random_images(6, 5, 3, seed=number))
            write_image(folder / "server" / f"{name} {number}.png", random_images(6, 5, 3, seed=5 + number))


def _mnistm(folder: Path) -> None:
    content = {part: random_images(10, 28, 28, 3) for part in ("train", "test")}
    content |= {f"{part}_labels": np.arange(10) for part in ("train", "test")}
    (folder / "mnistm.pkl").write_bytes(pickle.dumps(content, 2))


def _mnistm_npz(folder: Path) -> None:
    x, y = random_images(10, 28, 28, 3), np.arange(10)
    np.savez_compressed(folder / "mnistm.npz", x_train=x, y_train=y, x_test=x, y_test=y)


def _tensors(folder: Path) -> None:
    for part in ("train", "test"):
        torch.save((torch.from_numpy(random_images(10, 28, 28, 3)), torch.arange(10)), folder / f"mnist_m_{part}.pt")


def _lists(folder: Path) -> None:
    for part in ("train", "test"):
        for number in range(3):
            write_image(folder / f"mnist_m_{part}" / f"{number}.png", random_images(28, 28, 3, seed=number))
        (folder / f"mnist_m_{part}_labels.txt").write_text("".join(f"{number}.png {number}\n" for number in range(3)))


def _femnist(folder: Path) -> None:
    for part in ("train", "test"):
        write_leaf(folder, part, 0, {"a": letters(2, 1), "b": letters(2, 2)})


def _shakespeare(folder: Path) -> None:
    windows = [SPEECH[start : start + 80] for start in range(4)], list(SPEECH[80:84])
    for part in ("train", "test"):
        write_leaf(folder, part, 0, {"KING": windows})


def _hdf5(folder: Path) -> None:
    with h5py.File(folder / "usps.h5", "w") as file:
        for part in ("train", "test"):
            file[f"{part}/data"] = random_images(5, 256).astype(np.float32) / 255
            file[f"{part}/target"] = np.arange(5)


def _usps_text(folder: Path) -> None:
    write_usps(folder, 5, 5)
    (folder / "usps.bz2").unlink()
    (folder / "usps").write_text("1 1:0.5 256:-1\n10 2:0.25\n")


_LEAF = "all_data_0_niid_0_keep_0_"

PLACES = {
    "npz": Place("npz", _npz, "own.npz", {"data_file": "own.npz"}),
    "csv-clients": Place("csv", _csv, "clients.csv", {"data_file": "clients.csv", "server_file": "server.csv"}),
    "csv-server": Place("csv", _csv_labelled, "server.csv", {"data_file": "clients.csv", "server_file": "server.csv"}),
    "image": Place("images", _images, "clients/cat/0.png", {"data_file": "clients", "server_file": "server"}),
    "server-image": Place("images", _images, "server/cat 0.png", {"data_file": "clients", "server_file": "server"}),
    "idx": Place("mnist", lambda folder: write_mnist(folder, 12, 10), "train-images-idx3-ubyte"),
    "idx-gz": Place("mnist", lambda folder: write_mnist(folder, 12, 10, zipped=True), "t10k-labels-idx1-ubyte.gz"),
    "mat": Place("svhn", lambda folder: write_svhn(folder, 10, 10), "train_32x32.mat"),
    "cifar-batch": Place("cifar10", lambda folder: write_cifar10(folder, 10), "cifar-10-batches-py/test_batch"),
    "cifar-names": Place("cifar10", lambda folder: write_cifar10(folder, 10), "cifar-10-batches-py/batches.meta"),
    "cifar-archive": Place("cifar100", lambda folder: write_cifar100_archive(folder, 100), "cifar-100-python.tar.gz"),
    "pickle": Place("mnistm", _mnistm, "mnistm.pkl"),
    "mnistm-npz": Place("mnistm", _mnistm_npz, "mnistm.npz"),
    "tensors": Place("mnistm", _tensors, "mnist_m_test.pt"),
    "list": Place("mnistm", _lists, "mnist_m_train_labels.txt"),
    "femnist": Place("femnist", _femnist, f"train/{_LEAF}train_9.json"),
    "shakespeare": Place("shakespeare", _shakespeare, f"test/{_LEAF}test_9.json"),
    "libsvm": Place("usps", _usps_text, "usps"),
    "hdf5": Place("usps", _hdf5, "usps.h5"),
}
