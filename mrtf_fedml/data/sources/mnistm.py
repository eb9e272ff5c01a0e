"""MNIST-M: MNIST's digits over photographs (Y. Ganin et al., 2016), in the layouts in which it goes round.

It was never published in one format. Known here, in this order: image folders with label files or with a
subfolder a digit; a pickle of arrays; torch's .pt files; an .npz file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ...settings import DataSettings
from .arrays_by_name import arrays_of_part
from .checks import checked_source
from .idx import mnist_labels
from .pictures import common_format, image_files, read_images
from .reading import (
    UNREADABLE,
    cache_dir,
    damaged,
    find,
    first_line,
    read_bytes,
)
from .safe_pickle import load_pickle
from .source import Array, Source

FOLDERS = ("mnist_m", "mnistm", "MNIST-M", "MNIST_M", "MNISTM", "mnist_m/raw", "MNIST-M/raw", "MNIST_M/raw", "")
PICKLES = [
    name + suffix
    for name in ("keras_mnistm.pkl", "mnistm_data.pkl", "mnist_m_data.pkl", "mnistm.pkl", "mnist_m.pkl")
    for suffix in ("", ".gz")
]
TENSORS = ("mnist_m_train.pt", "mnist_m_test.pt")
IMAGE_FOLDERS = {"train": ("mnist_m_train", "train", "training"), "test": ("mnist_m_test", "test", "testing")}

#: Images [N, H, W, 3] and classes [N], which may be missing.
_Pair = tuple[Array, Array | None]


def load_mnistm(settings: DataSettings) -> Source:
    """The digits in colour, from whichever layout is there."""
    where, train, test = _read(settings)
    origin = f"dataset mnistm in {str(where)!r}"
    labels = [
        labels if labels is not None else _labels_of_mnist(settings, origin, part, len(images))
        for (images, labels), part in ((train, "train"), (test, "t10k"))
    ]
    return checked_source(
        "mnistm",
        origin,
        x_train=train[0],
        y_train=labels[0],
        x_test=test[0],
        y_test=labels[1],
        class_names=[str(digit) for digit in range(10)],
    )


def _read(settings: DataSettings) -> tuple[Path, _Pair, _Pair]:
    for folder in FOLDERS:
        place = cache_dir(settings) / folder
        parts = [_image_folder(place, names) for names in IMAGE_FOLDERS.values()]
        if parts[0] is not None and parts[1] is not None:
            return place, parts[0], parts[1]
    path = find(settings, FOLDERS, PICKLES)
    if path is not None:
        content = load_pickle(read_bytes(path), path)
        return path, arrays_of_part(path, content, "train"), arrays_of_part(path, content, "test")
    processed = [str(Path(folder, "processed")) for folder in FOLDERS]
    tensors = [find(settings, [*FOLDERS, *processed], [name]) for name in TENSORS]
    if tensors[0] is not None and tensors[1] is not None:
        return tensors[0].parent, _tensors(tensors[0]), _tensors(tensors[1])
    path = find(settings, FOLDERS, ["mnistm.npz", "mnist_m.npz"])
    if path is not None:
        content = _npz(path)
        return path, arrays_of_part(path, content, "train"), arrays_of_part(path, content, "test")
    first = cache_dir(settings) / FOLDERS[0]
    raise UserError(
        f"dataset mnistm is not in {str(cache_dir(settings))!r}, and torchvision cannot download it; put "
        "mnist_m_train, mnist_m_train_labels.txt, mnist_m_test and mnist_m_test_labels.txt, or keras_mnistm.pkl, into "
        f"{str(first)!r}"
    )


def _image_folder(place: Path, names: Sequence[str]) -> _Pair | None:
    """One part's images and classes: lines `name class` in a text file beside or in the folder, else subfolders."""
    for name in names:
        folder = place / name
        lists = [path for path in (place / f"{name}_labels.txt", folder / f"{name}_labels.txt") if path.is_file()]
        if folder.is_dir() and lists:
            files, labels = _labelled_files(folder, lists[0])
        elif any((folder / str(digit)).is_dir() for digit in range(10)):
            files = [path for path in image_files(folder) if path.parent.name.isdigit()]
            labels = [int(path.parent.name) for path in files]
        else:
            continue
        if not files:
            raise UserError(f"folder {str(folder)!r} has no image; unpack MNIST-M again")
        return read_images(files, common_format(files[:100], None)), np.array(labels, dtype=np.int64)
    return None


def _labelled_files(folder: Path, path: Path) -> tuple[list[Path], list[int]]:
    files: list[Path] = []
    labels: list[int] = []
    for number, line in enumerate(read_bytes(path).decode("utf-8", errors="replace").splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or not words[1].isdigit():
            raise damaged(path, f"line {number} is {line!r} and not a file's name and a class")
        file = folder / Path(words[0]).name
        if not file.is_file():
            raise UserError(f"image {str(file)!r}, named in {path.name}, is not there; unpack MNIST-M again")
        files.append(file)
        labels.append(int(words[1]))
    return files, labels


def _tensors(path: Path) -> _Pair:
    import torch

    try:
        content: Any = torch.load(path, weights_only=True)
    except Exception as error:
        # torch's own messages run over many lines; what it refuses is code, and what it cannot read is damage.
        raise damaged(path, first_line(error)) from error
    if not isinstance(content, tuple | list) or len(content) != 2:
        raise damaged(path, "it does not hold images and classes")
    return np.asarray(content[0]), np.asarray(content[1])


def _npz(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except UNREADABLE as error:
        raise damaged(path, error) from error


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
