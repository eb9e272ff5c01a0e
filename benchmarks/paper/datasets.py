"""The paper's datasets (Sect. 5 and Table data): networks, learning rates, sizes, files, and stand-ins."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mrtf_fedml.config import DataSettings
from mrtf_fedml.data.formatting import format_list
from mrtf_fedml.data.sources import SOURCES, Source, idx, leaf, load_source, mnistm, svhn
from mrtf_fedml.data.sources.downloads import download_dataset, list_downloads
from mrtf_fedml.data.sources.files import find_file
from mrtf_fedml.data.subsampling import evenly_spaced_rows
from mrtf_fedml.errors import UserError, suggest_name

#: The learning rates of the paper; it reports the best by the server's labels.
DIGITS_RATES, CIFAR_RATES = (0.1, 0.05, 0.01), (0.05, 0.03, 0.01)
#: Bytes at the start of a LEAF file that contain its user names and the first sample.
_HEAD_BYTES = 1 << 20
_MNIST_FILES = tuple(
    f"MNIST/raw/{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")
)


@dataclass(frozen=True)
class Dataset:
    """One of the paper's datasets.

    Attributes:
        name: the value of `data_args.dataset`.
        title: the name in the paper.
        model: its network.
        rates: the learning rates that the paper tries, or the one it names.
        rate: the middle one, which is used without `--grid`.
        batch_size: of a client's step.
        rounds: T in the figure that compares the algorithms.
        samples: N of the whole training set.
        server_samples: M of the whole test set.
        classes: C.
        files: the files that the data folder must contain.
        by_user: whether each client is one user.
    """

    name: str
    title: str
    model: str
    rates: tuple[float, ...]
    batch_size: int
    rounds: int
    samples: int
    server_samples: int
    classes: int
    files: tuple[str, ...]
    by_user: bool = False

    @property
    def rate(self) -> float:
        """The middle one of the learning rates."""
        return sorted(self.rates)[len(self.rates) // 2]


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("mnist", "MNIST", "mlp", DIGITS_RATES, 64, 200, 60000, 10000, 10, _MNIST_FILES),
        Dataset(
            *("mnistm", "MNISTm", "lenet", DIGITS_RATES, 64, 200, 60000, 10000, 10),
            tuple(f"mnist_m/mnist_m_{name}" for name in ("train", "train_labels.txt", "test", "test_labels.txt")),
        ),
        Dataset(
            *("svhn", "SVHN", "convnet", DIGITS_RATES, 64, 200, 73257, 26032, 10),
            ("train_32x32.mat", "test_32x32.mat"),
        ),
        Dataset(
            *("cifar10", "CIFAR10", "vgg8", CIFAR_RATES, 64, 1500, 50000, 10000, 10),
            ("cifar-10-python.tar.gz",),
        ),
        Dataset(
            *("cifar100", "CIFAR100", "vgg8", CIFAR_RATES, 64, 500, 50000, 10000, 100),
            ("cifar-100-python.tar.gz",),
        ),
        Dataset(
            *("femnist", "FeMnist", "fecnn", (0.004,), 10, 200, 85000, 16000, 62),
            ("femnist/train/*.json", "femnist/test/*.json"),
            by_user=True,
        ),
        Dataset(
            *("shakespeare", "Shakespeare", "charlstm", (1.47,), 10, 200, 437000, 84000, 80),
            ("shakespeare/train/*.json", "shakespeare/test/*.json"),
            by_user=True,
        ),
    )
}


def has_dataset(name: str, folder: Path) -> bool:
    """Whether the folder has the dataset, in any layout that its source supports; no sample is read."""
    settings = DataSettings(dataset=name, data_cache_dir=str(folder))
    if name == "mnist":
        stems = [
            (f"{part}-{what}", axes) for part in ("train", "t10k") for what, axes in (("images", 3), ("labels", 1))
        ]
        return _has_all(settings, idx.MNIST_FOLDERS, [_idx_names(stem, axes) for stem, axes in stems])
    if name == "mnistm":
        return _has_mnistm(settings, folder)
    if name == "svhn":
        return _has_all(settings, svhn.FOLDERS, [["train_32x32.mat"], ["test_32x32.mat"]])
    if name in ("cifar10", "cifar100"):
        number = name.removeprefix("cifar")
        unpacked = f"cifar-{number}-batches-py/test_batch" if number == "10" else "cifar-100-python/test"
        own_folder = Path(unpacked).name
        return _has_all(settings, ("", name, name.upper()), [[f"cifar-{number}-python.tar.gz", unpacked, own_folder]])
    return _has_leaf(name, folder)


def npz_file(name: str, folder: Path) -> Path | None:
    """The dataset as one file of arrays, NAME.npz, if there is one."""
    file = folder / f"{name}.npz"
    return file if file.is_file() else None


def _has_all(settings: DataSettings, folders: Sequence[str], wanted: Sequence[Sequence[str]]) -> bool:
    return all(find_file(settings, folders, names) is not None for names in wanted)


def _idx_names(stem: str, axes: int) -> list[str]:
    return [f"{stem}{dot}idx{axes}-ubyte{suffix}" for suffix in ("", ".gz") for dot in ("-", ".")]


def _has_mnistm(settings: DataSettings, folder: Path) -> bool:
    places = [*mnistm.FOLDERS, *(str(Path(place, "processed")) for place in mnistm.FOLDERS)]
    if find_file(settings, places, [*mnistm.PICKLES, mnistm.TENSORS[0], "mnistm.npz", "mnist_m.npz"]) is not None:
        return True
    return any(
        (folder / place / train).is_dir() and (folder / place / test).is_dir()
        for place in mnistm.FOLDERS
        for train, test in zip(*mnistm.IMAGE_FOLDERS.values(), strict=True)
        if place or train.startswith("mnist_m")
    )


def _has_leaf(name: str, folder: Path) -> bool:
    for place in leaf.FEMNIST_FOLDERS if name == "femnist" else leaf.SHAKESPEARE_FOLDERS:
        for below in (folder / place, folder / place / "data"):
            for train, test in (("train/*.json", "test/*.json"), ("*train*.json", "*test*.json")):
                files = sorted(below.glob(train))
                if files and any(below.glob(test)):
                    # In a folder without the dataset's name, LEAF files are distinguished by their content.
                    return bool(place) or _holds_text(files[0]) in (None, name == "shakespeare")
    return False


def _holds_text(file: Path) -> bool | None:
    """Whether the first sample is a string; None where the start of the file has no sample."""
    with file.open("rb") as content:
        first = re.search(rb'"x"\s*:\s*\[\s*(["\[])', content.read(_HEAD_BYTES))
    return first.group(1) == b'"' if first else None


#: The default stand-in, which needs no file.
EMBEDDED = "digits"
#: Minimum number of samples per client with the embedded digits, of which there are few.
MIN_EMBEDDED_SAMPLES = 12


@dataclass(frozen=True)
class Data:
    """The data used for one of the paper's datasets.

    Attributes:
        dataset: the paper's dataset.
        args: the `data_args` of the data.
        stand_in: the name of the replacement; empty where the data are the paper's.
    """

    dataset: Dataset
    args: dict[str, Any]
    stand_in: str = ""

    @property
    def title(self) -> str:
        """The name in figures, with the stand-in in brackets."""
        return f"{self.dataset.title} ({self.stand_in})" if self.stand_in else self.dataset.title

    @cached_property
    def source(self) -> Source:
        """The samples, loaded on first use."""
        return load_source(DataSettings(**self.args))

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """N, M and C. For LEAF the paper's numbers: the true ones depend on the users that a run draws."""
        if self.dataset.by_user and not self.stand_in:
            return self.dataset.samples, self.dataset.server_samples, self.dataset.classes
        source = self.source
        sizes = len(source.y_train), len(source.x_test), source.class_num
        # The samples are dropped from memory: the runs read them in their own processes.
        self.__dict__["by_user"], self.__dict__["model"] = self.by_user, self.model
        del self.__dict__["source"]
        return sizes

    @cached_property
    def by_user(self) -> bool:
        """Whether each client is one user."""
        return self.dataset.by_user and (not self.stand_in or self.source.users is not None)

    def subsample_users(self, of_client: Callable[[int], int]) -> tuple[int | None, int]:
        """The number of samples to keep, None for all, and the number of users with enough samples left.

        Args:
            of_client: how many of its samples a client of mean size keeps.
        """
        source = self.source
        assert source.users is not None, "each client is one user"
        owners = source.users.train
        each = max(1, len(owners) // max(1, len(np.unique(owners))))
        kept = len(owners) * min(each, of_client(each)) // each
        rows = evenly_spaced_rows("client_samples", kept, len(owners), "")
        remaining = int((np.bincount(owners[rows]) >= DataSettings().min_samples).sum())
        del self.__dict__["source"]
        return (kept if kept < len(owners) else None), max(1, remaining)

    @cached_property
    def model(self) -> str:
        """The paper's network, or one that accepts the stand-in."""
        return self.suitable_model(self.dataset.model)

    def suitable_model(self, model: str) -> str:
        """The network, or one that accepts the stand-in."""
        if not self.stand_in:
            return model
        if self.source.tokens or self.source.x_train.ndim < 3:
            return "charlstm" if self.source.tokens else "mlp"
        return "mlp" if model == "charlstm" else model

    @property
    def rate(self) -> float:
        """The learning rate; a rate for text does not suit images."""
        fits = not self.stand_in or self.model == self.dataset.model
        return self.dataset.rate if fits else DATASETS["mnist"].rate


class DataFolder:
    """The datasets in a folder, and the stand-ins for missing ones.

    Args:
        folder: `data_cache_dir`.
        stand_ins: values of `--stand-in`: an empty string for the embedded digits, a file or a dataset for all
            missing datasets, or `NAME=FILE.npz` and `NAME=DATASET` for one.
    """

    def __init__(self, folder: Path, stand_ins: Sequence[str] = ()) -> None:
        self.folder = folder
        self._named: dict[str, str] = {}
        self._for_all: str | None = None
        self._known: dict[str, Data] = {}
        for word in stand_ins:
            name, equals, value = word.rpartition("=")
            if equals and name not in DATASETS:
                raise UserError(f"--stand-in: the paper has no dataset {name!r}; {suggest_name(name, list(DATASETS))}")
            self._check(value)
            if equals:
                self._named[name] = value
            else:
                self._for_all = value or EMBEDDED

    def missing(self, names: Iterable[str]) -> list[str]:
        """The datasets that are neither in the folder nor replaced."""
        return [name for name in dict.fromkeys(names) if self._find(name) is None]

    def require(self, names: Iterable[str], experiment: str) -> None:
        """Refuse missing datasets before anything runs; the message names every expected file."""
        missing = self.missing(names)
        if missing:
            files = "; ".join(
                f"{DATASETS[name].title}: {', '.join(str(self.folder / file) for file in DATASETS[name].files)}, or "
                f"{self.folder / name}.npz"
                for name in missing
            )
            can_download = [DATASETS[name].title for name in missing if list_downloads(name)]
            offer = f"Download {format_list(can_download)} with --download; or put" if can_download else "Put"
            raise UserError(
                f"{experiment} needs missing data: {files}. {offer} them there, name another folder with --data, or "
                "replace them with --stand-in"
            )

    def download(self, names: Iterable[str]) -> None:
        """Download the missing datasets that torchvision can download; `require` refuses the others."""
        for name in self.missing(names):
            if list_downloads(name):
                download_dataset(name, self.folder)

    def data(self, name: str) -> Data:
        """The data used for the dataset; call `require` first."""
        if name not in self._known:
            data = self._find(name)
            assert data is not None, f"{name} is missing"
            self._known[name] = data
        return self._known[name]

    def _find(self, name: str) -> Data | None:
        dataset = DATASETS[name]
        if name in self._named:
            return self._make_stand_in(dataset, self._named[name])
        if has_dataset(name, self.folder):
            return Data(dataset, {"dataset": name, "data_cache_dir": str(self.folder)})
        file = npz_file(name, self.folder)
        if file is not None:
            return Data(dataset, {"dataset": "npz", "data_file": str(file)})
        return None if self._for_all is None else self._make_stand_in(dataset, self._for_all)

    def _make_stand_in(self, dataset: Dataset, value: str) -> Data:
        if value in SOURCES:
            name = "scikit-learn digits" if value == EMBEDDED else value
            return Data(dataset, {"dataset": value, "data_cache_dir": str(self.folder)}, name)
        return Data(dataset, {"dataset": "npz", "data_file": value}, Path(value).name)

    def _check(self, value: str) -> None:
        if value and value not in SOURCES and not Path(value).expanduser().is_file():
            raise UserError(
                f"--stand-in: {value!r} is neither a file (.npz with x_train, y_train, x_test, y_test) nor a dataset; "
                + suggest_name(value, list(SOURCES))
            )
