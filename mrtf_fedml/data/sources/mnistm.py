"""MNIST-M: MNIST's digits over photographs (Y. Ganin et al., 2016), in its usual layouts.

It was never published in one format. Supported, in this order: image folders with label files or with one subfolder
per digit; a pickle of arrays; torch's .pt files; an .npz file.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...config import DataSettings
from ...errors import UserError
from ..formatting import format_list, quote
from .files import MemoryLimit, cache_dir, damaged_file_error, find_file, memory_limit, read_bytes
from .idx import read_mnist_labels
from .images import common_format, list_images, read_images, sort_by_content
from .npz import read_npz
from .safe_pickle import integer_array, load_pickle
from .source import Array, Source, make_source

FOLDERS = ("mnist_m", "mnistm", "MNIST-M", "MNIST_M", "MNISTM", "mnist_m/raw", "MNIST-M/raw", "MNIST_M/raw", "")
PICKLES = [
    name + suffix
    for name in ("keras_mnistm.pkl", "mnistm_data.pkl", "mnist_m_data.pkl", "mnistm.pkl", "mnist_m.pkl")
    for suffix in ("", ".gz")
]
TENSORS = ("mnist_m_train.pt", "mnist_m_test.pt")
_DIGITS = [str(digit) for digit in range(10)]
IMAGE_FOLDERS = {"train": ("mnist_m_train", "train", "training"), "test": ("mnist_m_test", "test", "testing")}

#: The keys of images and classes of a part in a mapping; every author chose others.
_IMAGE_KEYS = ("{}", "x_{}", "X_{}", "{}_x", "{}_images", "{}_data", "{}_X")
_LABEL_KEYS = ("y_{}", "Y_{}", "{}_y", "{}_labels", "{}_label", "{}_targets", "{}_target")
_INNER_IMAGE_KEYS = ("images", "image", "data", "x", "X")
_INNER_LABEL_KEYS = ("labels", "label", "targets", "target", "y", "Y")

#: Images [N, H, W, 3] and classes [N], which may be missing.
_Pair = tuple[Array, Array | None]


@dataclass(frozen=True)
class _Parts:
    """Both parts, their path, and the names of the server's files if each image is a file."""

    path: Path
    train: _Pair
    test: _Pair
    ids: list[str] | None = None


def load_mnistm(settings: DataSettings) -> Source:
    """The digits in colour, from the first layout that is found."""
    parts = _read_parts(settings, memory_limit(settings))
    origin = f"dataset mnistm in {str(parts.path)!r}"
    labels = [
        labels if labels is not None else _labels_from_mnist(settings, origin, part, len(images))
        for (images, labels), part in ((parts.train, "train"), (parts.test, "t10k"))
    ]
    return make_source(
        "mnistm",
        origin,
        x_train=parts.train[0],
        y_train=labels[0],
        x_test=parts.test[0],
        y_test=labels[1],
        class_names=[str(digit) for digit in range(10)],
        ids=parts.ids,
    )


def _read_parts(settings: DataSettings, limit: MemoryLimit) -> _Parts:
    for folder in FOLDERS:
        root = cache_dir(settings) / folder
        train, test = (_read_image_folder(root, part, limit) for part in ("train", "test"))
        if train is not None and test is not None:
            return _Parts(root, train[0], test[0], test[1])
    path = find_file(settings, FOLDERS, PICKLES)
    if path is not None:
        content = load_pickle(read_bytes(path, limit), path)
        return _Parts(path, _part_arrays(path, content, "train"), _part_arrays(path, content, "test"))
    processed = [str(Path(folder, "processed")) for folder in FOLDERS]
    tensors = [find_file(settings, [*FOLDERS, *processed], [name]) for name in TENSORS]
    if tensors[0] is not None and tensors[1] is not None:
        return _Parts(tensors[0].parent, _read_tensors(tensors[0], limit), _read_tensors(tensors[1], limit))
    path = find_file(settings, FOLDERS, ["mnistm.npz", "mnist_m.npz"])
    if path is not None:
        content = read_npz(path, f"data file {str(path)!r}", limit)
        return _Parts(path, _part_arrays(path, content, "train"), _part_arrays(path, content, "test"))
    first = cache_dir(settings) / FOLDERS[0]
    raise UserError(
        f"dataset mnistm is not in {str(cache_dir(settings))!r}, and torchvision cannot download it; put "
        "mnist_m_train, mnist_m_train_labels.txt, mnist_m_test and mnist_m_test_labels.txt, or keras_mnistm.pkl, into "
        f"{str(first)!r}"
    )


def _read_image_folder(root: Path, part: str, limit: MemoryLimit) -> tuple[_Pair, list[str]] | None:
    """The images, classes and file names of one part.

    The classes are lines `name class` in a text file next to or in the folder, else the names of subfolders.
    """
    for name in IMAGE_FOLDERS[part]:
        folder = root / name
        label_files = [path for path in (root / f"{name}_labels.txt", folder / f"{name}_labels.txt") if path.is_file()]
        if folder.is_dir() and label_files:
            files, labels = _read_label_file(folder, label_files[0], limit)
        elif any((folder / str(digit)).is_dir() for digit in range(10)):
            files = [path for path in list_images(folder) if path.parent.name in _DIGITS]
            # The server's samples must not be in the order of their classes.
            files = files if part == "train" else sort_by_content(files, limit)
            labels = [int(path.parent.name) for path in files]
        else:
            continue
        if not files:
            raise UserError(f"folder {str(folder)!r} has no image; unpack MNIST-M again")
        images = read_images(files, common_format(files[:100], None, limit), limit)
        return (images, np.array(labels, dtype=np.int64)), [path.relative_to(folder).as_posix() for path in files]
    return None


def _read_label_file(folder: Path, path: Path, limit: MemoryLimit) -> tuple[list[Path], list[int]]:
    files: list[Path] = []
    labels: list[int] = []
    for number, line in enumerate(read_bytes(path, limit).decode("utf-8", "surrogateescape").splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or words[1] not in _DIGITS:
            raise damaged_file_error(path, f"line {number} is {quote(line)} and not a file name and a class")
        file = folder / Path(words[0]).name
        if not file.is_file():
            raise UserError(f"image {str(file)!r}, named in {path.name}, does not exist; unpack MNIST-M again")
        files.append(file)
        labels.append(int(words[1]))
    return files, labels


def _labels_from_mnist(settings: DataSettings, origin: str, part: str, samples: int) -> Array:
    """MNIST's classes, for a layout without any: digit i of MNIST-M is digit i of MNIST.

    Ganin's pickle excludes MNIST's first 5000 training digits, which TensorFlow's reader used for validation.
    """
    labels = read_mnist_labels(settings, part)
    if labels is None:
        raise UserError(
            f"{origin} has no labels, which are those of MNIST; put MNIST's {part}-labels-idx1-ubyte into "
            f"{str(cache_dir(settings) / 'MNIST' / 'raw')!r}"
        )
    excluded = len(labels) - samples
    if excluded not in (0, 5000):
        raise UserError(
            f"{origin} has no labels and {samples} samples where MNIST's {part} has {len(labels)}; use "
            "a copy with labels"
        )
    return labels[excluded:]


def _part_arrays(path: Path, content: Any, part: str) -> _Pair:
    """The uint8 images and the classes of `train` or `test` in a mapping; None for missing classes.

    >>> content = {"train": np.zeros((2, 28, 28, 3), np.uint8), "train_labels": np.array([3, 4])}
    >>> _part_arrays(Path("mnistm.pkl"), content, "train")[1].tolist()
    [3, 4]
    """
    if not isinstance(content, Mapping):
        raise damaged_file_error(path, "it holds no mapping with the parts train and test")
    images, labels = _first_value(content, _IMAGE_KEYS, part), _first_value(content, _LABEL_KEYS, part)
    if isinstance(images, Mapping):
        images, labels = _first_value(images, _INNER_IMAGE_KEYS), _first_value(images, _INNER_LABEL_KEYS)
    elif isinstance(images, tuple | list) and len(images) == 2:
        images, labels = images
    if images is None:
        raise UserError(
            f"data file {str(path)!r} has no images under {part!r} (it holds {format_list(content)}); use another copy"
        )
    # Lists are not converted to arrays: a few that contain each other many times would fill any memory.
    if not isinstance(images, np.ndarray):
        raise damaged_file_error(path, f"its images under {part!r} are a {type(images).__name__} and not an array")
    pixels = images
    if pixels.dtype.kind == "f" and pixels.size and pixels.min() >= 0 and pixels.max() <= 1:
        pixels = np.rint(pixels * 255).astype(np.uint8)
    if pixels.dtype != np.uint8 or pixels.ndim != 4:
        raise damaged_file_error(path, f"its images under {part!r} are {pixels.dtype} of shape {pixels.shape}")
    return pixels, None if labels is None else _class_array(path, labels, part)


def _first_value(mapping: Mapping[str, Any], keys: Sequence[str], part: str = "") -> Any:
    return next((mapping[key.format(part)] for key in keys if key.format(part) in mapping), None)


def _class_array(path: Path, labels: Any, part: str) -> Array:
    classes = labels if isinstance(labels, np.ndarray) else integer_array(labels)
    if classes is None:
        raise damaged_file_error(path, f"its classes under {part!r} are neither an array nor a list of integers")
    if classes.ndim == 2 and classes.shape[1] > 1:
        ones, others = (classes == 1).sum(axis=1), ((classes != 0) & (classes != 1)).sum(axis=1)
        if not ((ones == 1) & (others == 0)).all():
            raise damaged_file_error(path, f"its classes under {part!r} are rows that are not one-hot")
        return classes.argmax(axis=1)
    return classes


def _read_tensors(path: Path, limit: MemoryLimit) -> tuple[Array, Array]:
    """The images and the classes that `torch.save((images, classes), path)` wrote."""
    import torch

    origin = f"data file {str(path)!r}"
    try:
        limit.check(path.stat().st_size, origin)
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                limit.check(sum(member.file_size for member in archive.infolist()), origin)
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(content, tuple | list) or len(content) != 2:
            raise ValueError("it does not hold images and classes")
        return _tensor_to_array(content[0], limit, origin), _tensor_to_array(content[1], limit, origin)
    except UserError:
        raise
    # torch rejects code and fails on damaged files with exceptions of many types.
    except Exception as error:
        raise damaged_file_error(path, error) from error


def _tensor_to_array(tensor: Any, limit: MemoryLimit, origin: str) -> Array:
    import torch

    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
        raise ValueError("it does not hold images and classes as plain tensors")
    # A tensor with stride 0 may repeat a few bytes of memory without limit.
    limit.check(tensor.numel() * tensor.element_size(), origin)
    return np.asarray(tensor.detach())
