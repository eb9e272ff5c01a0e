"""SVHN: house numbers from street view (Y. Netzer et al., 2011), as Stanford's .mat files of cropped digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import UserError
from ...settings import DataSettings
from .checks import checked_source
from .memory import Memory, memory_of
from .reading import damaged, require
from .source import Array, Source

FOLDERS = ("", "svhn", "SVHN")

#: The files number the digits as a telephone does: 0 comes after 9.
ZERO = 10

#: MATLAB's names of arrays of numbers, which are NumPy's too.
_NUMBERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "single", "double")


def load_svhn(settings: DataSettings) -> Source:
    """The 73257 and 26032 cropped digits; the `extra` ones are not used."""
    train, test = require(settings, FOLDERS, [["train_32x32.mat"], ["test_32x32.mat"]])
    memory = memory_of(settings)
    (x_train, y_train), (x_test, y_test) = _read(train, memory), _read(test, memory)
    return checked_source(
        "svhn",
        f"dataset svhn in {str(train.parent)!r}",
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        class_names=[str(digit) for digit in range(10)],
    )


def _read(path: Path, memory: Memory) -> tuple[Array, Array]:
    """Images [N, 32, 32, 3] and digits [N] of one file."""
    # Imported here, since no other dataset needs it.
    from scipy import io

    try:
        memory.check(path.stat().st_size, f"data file {str(path)!r}")
        # What each variable is, told by its header alone.
        _check_held(path, io.whosmat(path), memory)
        content = io.loadmat(path, variable_names=["X", "y"])
    except UserError:
        raise
    # On a damaged file scipy raises whatever its parser stumbles on first, of no common kind.
    except Exception as error:
        raise damaged(path, error) from error
    for key in ("X", "y"):
        if key not in content:
            raise UserError(f"data file {str(path)!r} has no array {key!r}; take SVHN's format 2, cropped digits")
    images, given = content["X"], content["y"].reshape(-1)
    if given.dtype.kind not in "uif" or not np.isin(given, np.arange(ZERO + 1)).all():
        raise UserError(
            f"data file {str(path)!r}: y holds {given.min()} to {given.max()} where 1 to 10 belong; fetch it again"
        )
    digits = given.astype(np.int64)
    # MATLAB drops a last axis of size one.
    images = images[..., None] if images.ndim == 3 else images
    if images.ndim != 4 or images.shape[2] != 3 or images.dtype != np.uint8:
        raise UserError(
            f"data file {str(path)!r}: X is {images.dtype} of shape {images.shape} and not uint8 of height, width, "
            "3, N; take SVHN's format 2, cropped digits"
        )
    return images.transpose(3, 0, 1, 2), np.where(digits == ZERO, 0, digits)


def _check_held(path: Path, held: list[tuple[str, tuple[int, ...], str]], memory: Memory) -> None:
    for name, shape, kind in held:
        if name not in ("X", "y"):
            continue
        # Cells and structures nest, and their depth has no end.
        if kind not in _NUMBERS:
            raise damaged(path, f"{name} is {kind} and no array of numbers")
        memory.check_array(shape, np.dtype(kind).itemsize, f"data file {str(path)!r}: {name}")
