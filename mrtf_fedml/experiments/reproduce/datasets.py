"""The paper's datasets (Sect. 5 and Table data): their networks, rates and sizes, and the files they lie in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...data.sources import femnist, idx, mnistm, shakespeare, svhn
from ...data.sources.reading import find
from ...settings import DataSettings

#: The paper's learning rates, of which it reports the best by the server's labels.
DIGITS_RATES, CIFAR_RATES = (0.1, 0.05, 0.01), (0.05, 0.03, 0.01)
#: Bytes of a file of LEAF's: its users' names and the first sample.
_BEGINNING = 1 << 20
_MNIST_FILES = tuple(
    f"MNIST/raw/{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")
)


@dataclass(frozen=True)
class Dataset:
    """One of the paper's datasets.

    Attributes:
        name: as `data_args.dataset` spells it.
        title: as the paper does.
        model: its network.
        rates: the learning rates that the paper tries, or the one it names.
        rate: the one that is taken where not all are tried: the middle one.
        batch_size: of a client's step.
        rounds: T, in the figure that compares the algorithms.
        samples: N of the whole training set.
        server_samples: M of the whole test set.
        classes: C.
        files: what must lie in the folder of the data.
        by_user: whether a client is a user.
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
        """The middle one of the paper's rates."""
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


def is_there(name: str, folder: Path) -> bool:
    """Whether the folder has the dataset, in any layout that its source knows; no sample is read."""
    settings = DataSettings(dataset=name, data_cache_dir=str(folder))
    if name == "mnist":
        stems = [
            (f"{part}-{what}", axes) for part in ("train", "t10k") for what, axes in (("images", 3), ("labels", 1))
        ]
        return _all(settings, idx.MNIST_FOLDERS, [_idx_names(stem, axes) for stem, axes in stems])
    if name == "mnistm":
        return _has_mnistm(settings, folder)
    if name == "svhn":
        return _all(settings, svhn.FOLDERS, [["train_32x32.mat"], ["test_32x32.mat"]])
    if name in ("cifar10", "cifar100"):
        number = name.removeprefix("cifar")
        unpacked = f"cifar-{number}-batches-py/test_batch" if number == "10" else "cifar-100-python/test"
        own_folder = Path(unpacked).name
        return _all(settings, ("", name, name.upper()), [[f"cifar-{number}-python.tar.gz", unpacked, own_folder]])
    return _has_leaf(name, folder)


def given_file(name: str, folder: Path) -> Path | None:
    """The dataset as one file of arrays, NAME.npz, where the folder has it in no layout of its own."""
    file = folder / f"{name}.npz"
    return file if file.is_file() else None


def _all(settings: DataSettings, folders: Sequence[str], wanted: Sequence[Sequence[str]]) -> bool:
    return all(find(settings, folders, names) is not None for names in wanted)


def _idx_names(stem: str, axes: int) -> list[str]:
    return [f"{stem}{dot}idx{axes}-ubyte{suffix}" for suffix in ("", ".gz") for dot in ("-", ".")]


def _has_mnistm(settings: DataSettings, folder: Path) -> bool:
    places = [*mnistm.FOLDERS, *(str(Path(place, "processed")) for place in mnistm.FOLDERS)]
    if find(settings, places, [*mnistm.PICKLES, mnistm.TENSORS[0], "mnistm.npz", "mnist_m.npz"]) is not None:
        return True
    return any(
        (folder / place / train).is_dir() and (folder / place / test).is_dir()
        for place in mnistm.FOLDERS
        for train, test in zip(*mnistm.IMAGE_FOLDERS.values(), strict=True)
        if place or train.startswith("mnist_m")
    )


def _has_leaf(name: str, folder: Path) -> bool:
    for place in femnist.FOLDERS if name == "femnist" else shakespeare.FOLDERS:
        for below in (folder / place, folder / place / "data"):
            for train, test in (("train/*.json", "test/*.json"), ("*train*.json", "*test*.json")):
                files = sorted(below.glob(train))
                if files and any(below.glob(test)):
                    # In a folder without the dataset's name LEAF's files are told apart by what is in them.
                    return bool(place) or _holds_text(files[0]) in (None, name == "shakespeare")
    return False


def _holds_text(file: Path) -> bool | None:
    """Whether the first sample is a text; None where the beginning of the file does not tell."""
    with file.open("rb") as content:
        first = re.search(rb'"x"\s*:\s*\[\s*(["\[])', content.read(_BEGINNING))
    return first.group(1) == b'"' if first else None
