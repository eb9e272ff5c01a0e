"""MNIST and Fashion-MNIST in the idx format (Y. LeCun, C. Cortes, C. Burges, 1998).

An idx file has two zero bytes, a byte for the type (8 is uint8), a byte for the number of axes, the sizes of the axes
as big-endian 32-bit numbers, and then the data.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...config import DataSettings
from ...errors import UserError
from .files import MemoryLimit, damaged_file_error, find_file, memory_limit, read_bytes, require_files
from .source import Array, Source, make_source

UINT8 = 8

#: torchvision's folder first, then those of manual downloads.
MNIST_FOLDERS = ("MNIST/raw", "mnist/raw", "MNIST", "mnist", "raw", "")
FASHION_FOLDERS = ("FashionMNIST/raw", "FashionMNIST", "fashion_mnist", "fashion-mnist", "raw", "")
FASHION_NAMES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


def load_mnist(settings: DataSettings) -> Source:
    """The 60000 and 10000 handwritten digits."""
    return _load(settings, MNIST_FOLDERS, [str(digit) for digit in range(10)])


def load_fashion_mnist(settings: DataSettings) -> Source:
    """Zalando's 60000 and 10000 images of clothes (H. Xiao et al., 2017)."""
    return _load(settings, FASHION_FOLDERS, FASHION_NAMES)


def read_mnist_labels(settings: DataSettings, part: str) -> Array | None:
    """The classes of MNIST's `train` or `t10k`; None if the file does not exist."""
    path = find_file(settings, MNIST_FOLDERS, _file_names(f"{part}-labels", 1))
    return None if path is None else read_idx(path, 1, memory_limit(settings))


def _load(settings: DataSettings, folders: Sequence[str], class_names: Sequence[str]) -> Source:
    wanted = [_file_names(f"{part}-{what}", axes) for part in ("train", "t10k") for what, axes in _CONTENTS]
    paths = require_files(settings, folders, wanted)
    x_train, y_train, x_test, y_test = (
        read_idx(path, axes, memory_limit(settings)) for path, (_, axes) in zip(paths, _CONTENTS * 2, strict=True)
    )
    return make_source(
        settings.dataset,
        f"dataset {settings.dataset} in {str(paths[0].parent)!r}",
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        class_names=class_names,
    )


_CONTENTS = (("images", 3), ("labels", 1))


def _file_names(stem: str, axes: int) -> list[str]:
    """The spellings of the file's name."""
    return [f"{stem}{dot}idx{axes}-ubyte{suffix}" for suffix in ("", ".gz") for dot in ("-", ".")]


def read_idx(path: Path, axes: int, limit: MemoryLimit) -> Array:
    """The uint8 array of an idx file, which must have `axes` axes."""
    content = read_bytes(path, limit)
    if len(content) < 4 or content[:2] != b"\0\0":
        raise UserError(f"data file {str(path)!r} is not an idx file; download it again")
    type_code, axis_count = content[2], content[3]
    if (type_code, axis_count) != (UINT8, axes):
        raise UserError(
            f"data file {str(path)!r} has {axis_count} axes of type {type_code} instead of {axes} of type {UINT8}; "
            "use the right file of the dataset"
        )
    start = 4 + 4 * axes
    if len(content) < start:
        raise damaged_file_error(path, "it ends inside its header")
    shape = struct.unpack(f">{axes}I", content[4:start])
    size = math.prod(shape)
    if len(content) - start != size:
        raise damaged_file_error(path, f"its header announces {size} bytes but it has {len(content) - start}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
