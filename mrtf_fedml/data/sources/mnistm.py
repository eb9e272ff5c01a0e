"""MNIST-M: MNIST's digits over photographs (Y. Ganin et al., 2016), in the layouts in which it goes round.

It was never published in one format. Known here, in this order: image folders with label files or with a
subfolder a digit; a pickle of arrays; torch's .pt files; an .npz file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import UserError
from ...settings import DataSettings
from ..names import shown
from .arrays_by_name import arrays_of_part
from .checks import checked_source
from .idx import mnist_labels
from .memory import Memory, memory_of
from .npz_arrays import read_npz
from .pictures import (
    by_content,
    common_format,
    image_files,
    read_images,
)
from .reading import (
    cache_dir,
    damaged,
    find,
    read_bytes,
)
from .safe_pickle import load_pickle
from .source import Array, Source
from .torch_file import read_tensors

FOLDERS = ("mnist_m", "mnistm", "MNIST-M", "MNIST_M", "MNISTM", "mnist_m/raw", "MNIST-M/raw", "MNIST_M/raw", "")
PICKLES = [
    name + suffix
    for name in ("keras_mnistm.pkl", "mnistm_data.pkl", "mnist_m_data.pkl", "mnistm.pkl", "mnist_m.pkl")
    for suffix in ("", ".gz")
]
TENSORS = ("mnist_m_train.pt", "mnist_m_test.pt")
_DIGITS = [str(digit) for digit in range(10)]
IMAGE_FOLDERS = {"train": ("mnist_m_train", "train", "training"), "test": ("mnist_m_test", "test", "testing")}

#: Images [N, H, W, 3] and classes [N], which may be missing.
_Pair = tuple[Array, Array | None]


@dataclass(frozen=True)
class _Parts:
    """Both parts, where they were found, and the names of the server's files where each image is one."""

    where: Path
    train: _Pair
    test: _Pair
    ids: list[str] | None = None


def load_mnistm(settings: DataSettings) -> Source:
    """The digits in colour, from whichever layout is there."""
    parts = _read(settings, memory_of(settings))
    origin = f"dataset mnistm in {str(parts.where)!r}"
    labels = [
        labels if labels is not None else _labels_of_mnist(settings, origin, part, len(images))
        for (images, labels), part in ((parts.train, "train"), (parts.test, "t10k"))
    ]
    return checked_source(
        "mnistm",
        origin,
        x_train=parts.train[0],
        y_train=labels[0],
        x_test=parts.test[0],
        y_test=labels[1],
        class_names=[str(digit) for digit in range(10)],
        ids=parts.ids,
    )


def _read(settings: DataSettings, memory: Memory) -> _Parts:
    for folder in FOLDERS:
        place = cache_dir(settings) / folder
        train, test = (_image_folder(place, part, memory) for part in ("train", "test"))
        if train is not None and test is not None:
            return _Parts(place, train[0], test[0], test[1])
    path = find(settings, FOLDERS, PICKLES)
    if path is not None:
        content = load_pickle(read_bytes(path, memory), path)
        return _Parts(path, arrays_of_part(path, content, "train"), arrays_of_part(path, content, "test"))
    processed = [str(Path(folder, "processed")) for folder in FOLDERS]
    tensors = [find(settings, [*FOLDERS, *processed], [name]) for name in TENSORS]
    if tensors[0] is not None and tensors[1] is not None:
        return _Parts(tensors[0].parent, read_tensors(tensors[0], memory), read_tensors(tensors[1], memory))
    path = find(settings, FOLDERS, ["mnistm.npz", "mnist_m.npz"])
    if path is not None:
        content = read_npz(path, f"data file {str(path)!r}", memory)
        return _Parts(path, arrays_of_part(path, content, "train"), arrays_of_part(path, content, "test"))
    first = cache_dir(settings) / FOLDERS[0]
    raise UserError(
        f"dataset mnistm is not in {str(cache_dir(settings))!r}, and torchvision cannot download it; put "
        "mnist_m_train, mnist_m_train_labels.txt, mnist_m_test and mnist_m_test_labels.txt, or keras_mnistm.pkl, into "
        f"{str(first)!r}"
    )


def _image_folder(place: Path, part: str, memory: Memory) -> tuple[_Pair, list[str]] | None:
    """One part's images, classes and files' names.

    The classes are lines `name class` in a text file beside or in the folder, else the names of subfolders.
    """
    for name in IMAGE_FOLDERS[part]:
        folder = place / name
        lists = [path for path in (place / f"{name}_labels.txt", folder / f"{name}_labels.txt") if path.is_file()]
        if folder.is_dir() and lists:
            files, labels = _labelled_files(folder, lists[0], memory)
        elif any((folder / str(digit)).is_dir() for digit in range(10)):
            files = [path for path in image_files(folder) if path.parent.name in _DIGITS]
            # Only the clients' samples may lie in the order of their classes.
            files = files if part == "train" else by_content(files, memory)
            labels = [int(path.parent.name) for path in files]
        else:
            continue
        if not files:
            raise UserError(f"folder {str(folder)!r} has no image; unpack MNIST-M again")
        images = read_images(files, common_format(files[:100], None, memory), memory)
        return (images, np.array(labels, dtype=np.int64)), [path.relative_to(folder).as_posix() for path in files]
    return None


def _labelled_files(folder: Path, path: Path, memory: Memory) -> tuple[list[Path], list[int]]:
    files: list[Path] = []
    labels: list[int] = []
    for number, line in enumerate(read_bytes(path, memory).decode("utf-8", "surrogateescape").splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or words[1] not in _DIGITS:
            raise damaged(path, f"line {number} is {shown(line)} and not a file's name and a class")
        file = folder / Path(words[0]).name
        if not file.is_file():
            raise UserError(f"image {str(file)!r}, named in {path.name}, is not there; unpack MNIST-M again")
        files.append(file)
        labels.append(int(words[1]))
    return files, labels


def _labels_of_mnist(settings: DataSettings, origin: str, part: str, samples: int) -> Array:
    """MNIST's own classes, for a layout that has none: digit i of MNIST-M is digit i of MNIST.

    Ganin's pickle keeps MNIST's first 5000 training digits apart for validation, as TensorFlow's reader did.
    """
    labels = mnist_labels(settings, part)
    if labels is None:
        raise UserError(
            f"{origin} has no labels, which are MNIST's own; put MNIST's {part}-labels-idx1-ubyte into "
            f"{str(cache_dir(settings) / 'MNIST' / 'raw')!r}"
        )
    left_out = len(labels) - samples
    if left_out not in (0, 5000):
        raise UserError(
            f"{origin} has no labels and {samples} samples where MNIST's {part} has {len(labels)}; take "
            "a copy with labels"
        )
    return labels[left_out:]
