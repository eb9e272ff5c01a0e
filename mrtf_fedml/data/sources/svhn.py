"""SVHN: house numbers from street view (Y. Netzer et al., 2011), as Stanford's .mat files of cropped digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...config import DataSettings
from ...errors import UserError
from .files import MemoryLimit, damaged_file_error, memory_limit, require_files
from .source import Array, Source, make_source

FOLDERS = ("", "svhn", "SVHN")

#: The label of the digit 0 in the files.
ZERO = 10

#: MATLAB's types of numeric arrays, which have the same names in NumPy.
_NUMERIC_TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "single", "double")


def load_svhn(settings: DataSettings) -> Source:
    """The 73257 and 26032 cropped digits; the `extra` ones are not used."""
    train, test = require_files(settings, FOLDERS, [["train_32x32.mat"], ["test_32x32.mat"]])
    limit = memory_limit(settings)
    (x_train, y_train), (x_test, y_test) = _read_mat(train, limit), _read_mat(test, limit)
    return make_source(
        "svhn",
        f"dataset svhn in {str(train.parent)!r}",
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        class_names=[str(digit) for digit in range(10)],
    )


def _read_mat(path: Path, limit: MemoryLimit) -> tuple[Array, Array]:
    """Images [N, 32, 32, 3] and digits [N] of one file."""
    # Imported here, since no other dataset needs it.
    from scipy import io

    try:
        limit.check(path.stat().st_size, f"data file {str(path)!r}")
        # Check the headers of the variables first.
        _check_variables(path, io.whosmat(path), limit)
        content = io.loadmat(path, variable_names=["X", "y"])
    except UserError:
        raise
    # For a damaged file scipy raises exceptions without a common base class.
    except Exception as error:
        raise damaged_file_error(path, error) from error
    for key in ("X", "y"):
        if key not in content:
            raise UserError(f"data file {str(path)!r} has no array {key!r}; use SVHN's format 2, cropped digits")
    images, labels = content["X"], content["y"].reshape(-1)
    if labels.dtype.kind not in "uif" or not np.isin(labels, np.arange(ZERO + 1)).all():
        raise UserError(
            f"data file {str(path)!r}: y holds {labels.min()} to {labels.max()} instead of 1 to 10; download it again"
        )
    digits = labels.astype(np.int64)
    # MATLAB drops a last axis of size one.
    images = images[..., None] if images.ndim == 3 else images
    if images.ndim != 4 or images.shape[2] != 3 or images.dtype != np.uint8:
        raise UserError(
            f"data file {str(path)!r}: X is {images.dtype} of shape {images.shape} and not uint8 of height, width, "
            "3, N; use SVHN's format 2, cropped digits"
        )
    return images.transpose(3, 0, 1, 2), np.where(digits == ZERO, 0, digits)


def _check_variables(path: Path, variables: list[tuple[str, tuple[int, ...], str]], limit: MemoryLimit) -> None:
    for name, shape, kind in variables:
        if name not in ("X", "y"):
            continue
        # Cells and structures can be nested to any depth.
        if kind not in _NUMERIC_TYPES:
            raise damaged_file_error(path, f"{name} is {kind} and not an array of numbers")
        limit.check_array(shape, np.dtype(kind).itemsize, f"data file {str(path)!r}: {name}")
