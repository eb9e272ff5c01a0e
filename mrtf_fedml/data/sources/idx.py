"""MNIST and Fashion-MNIST in their own format, idx (Y. LeCun, C. Cortes, C. Burges, 1998).

An idx file has two zero bytes, a byte for the kind of number (8 is uint8), a byte for the number of axes, the
axes' sizes as big-endian 32-bit numbers, and then the numbers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...errors import UserError
from ...settings import DataSettings
from .checks import checked_source
from .memory import Memory, memory_of
from .reading import (
    damaged,
    find,
    read_bytes,
    require,
)
from .source import Array, Source

UINT8 = 8

#: torchvision's folder comes first, then the files as they are downloaded by hand.
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
    """Zalando's 60000 and 10000 pictures of clothes (H. Xiao et al., 2017)."""
    return _load(settings, FASHION_FOLDERS, FASHION_NAMES)


def mnist_labels(settings: DataSettings, part: str) -> Array | None:
    """The classes of MNIST's `train` or `t10k` alone, where the files are there."""
    path = find(settings, MNIST_FOLDERS, _names(f"{part}-labels", 1))
    return None if path is None else read_idx(path, 1, memory_of(settings))


def _load(settings: DataSettings, folders: Sequence[str], class_names: Sequence[str]) -> Source:
    wanted = [_names(f"{part}-{what}", axes) for part in ("train", "t10k") for what, axes in _CONTENTS]
    paths = require(settings, folders, wanted)
    x_train, y_train, x_test, y_test = (
        read_idx(path, axes, memory_of(settings)) for path, (_, axes) in zip(paths, _CONTENTS * 2, strict=True)
    )
    return checked_source(
        settings.dataset,
        f"dataset {settings.dataset} in {str(paths[0].parent)!r}",
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        class_names=class_names,
    )


_CONTENTS = (("images", 3), ("labels", 1))


def _names(stem: str, axes: int) -> list[str]:
    """Every way in which the world spells the file's name."""
    return [f"{stem}{dot}idx{axes}-ubyte{suffix}" for suffix in ("", ".gz") for dot in ("-", ".")]


def read_idx(path: Path, axes: int, memory: Memory) -> Array:
    """The uint8 array of an idx file, which must have so many axes."""
    content = read_bytes(path, memory)
    if len(content) < 4 or content[:2] != b"\0\0":
        raise UserError(f"data file {str(path)!r} is no idx file; fetch it again")
    kind, found = content[2], content[3]
    if (kind, found) != (UINT8, axes):
        raise UserError(
            f"data file {str(path)!r} holds {found} axes of the type {kind} where {axes} of the type {UINT8} "
            "belong; is it another of the dataset's files?"
        )
    start = 4 + 4 * axes
    if len(content) < start:
        raise damaged(path, "it ends inside its header")
    shape = struct.unpack(f">{axes}I", content[4:start])
    size = math.prod(shape)
    if len(content) - start != size:
        raise damaged(path, f"its header promises {size} bytes but it has {len(content) - start}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
