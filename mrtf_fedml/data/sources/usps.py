"""USPS: digits from envelopes (J. Hull, 1994), as LIBSVM's text files or as one HDF5 file."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np

from ...config import DataSettings
from ...errors import UserError
from .files import (
    MemoryLimit,
    damaged_file_error,
    find_file,
    first_line,
    memory_limit,
    read_bytes,
    require_files,
)
from .source import Array, Source, make_source

FOLDERS = ("", "usps", "USPS")
SIDE = 16


def load_usps(settings: DataSettings) -> Source:
    """The 7291 and 2007 digits of 16x16 pixels, white on black."""
    limit = memory_limit(settings)
    hdf5 = find_file(settings, FOLDERS, ["usps.h5"])
    if hdf5 is not None and find_file(settings, FOLDERS, ["usps.bz2", "usps"]) is None:
        origin, (train, test) = hdf5, _read_hdf5(hdf5, limit)
    else:
        paths = require_files(settings, FOLDERS, [["usps.bz2", "usps"], ["usps.t.bz2", "usps.t"]])
        origin, (train, test) = paths[0].parent, (_read_libsvm(paths[0], limit), _read_libsvm(paths[1], limit))
    return make_source(
        "usps",
        f"dataset usps in {str(origin)!r}",
        x_train=train[0],
        y_train=train[1],
        x_test=test[0],
        y_test=test[1],
        class_names=[str(digit) for digit in range(10)],
    )


def _read_libsvm(path: Path, limit: MemoryLimit) -> tuple[Array, Array]:
    """Lines of `label index:value ...`, labels 1 to 10, values -1 to 1; an absent index is 0."""
    lines = read_bytes(path, limit).splitlines()
    limit.check_array((len(lines), SIDE * SIDE), np.dtype(np.float64).itemsize, f"data file {str(path)!r}")
    values = np.zeros((len(lines), SIDE * SIDE), dtype=np.float32)
    labels = np.zeros(len(lines), dtype=np.int64)
    for row, line in enumerate(lines):
        try:
            labels[row] = _parse_line(values[row], line.split(maxsplit=SIDE * SIDE + 1))
        except (ValueError, IndexError) as error:
            raise damaged_file_error(path, f"line {row + 1}: {first_line(error)}") from error
    return _to_pixels(path, (values + 1) / 2), labels


def _parse_line(values: Array, words: list[bytes]) -> int:
    """Write the values of a line to `values`; returns the digit, which is the line's label minus one."""
    if not words or not words[0].strip(b"0123456789.") == b"" or float(words[0]) not in range(1, 11):
        raise ValueError(f"the label is {words[0][:20].decode('latin1') if words else ''!r} and not 1 to 10")
    seen = set()
    for word in words[1:]:
        index, value = word.split(b":")
        number = int(index)
        if not 1 <= number <= SIDE * SIDE or number in seen:
            raise ValueError(f"pixel {number} {'occurs twice' if number in seen else 'does not exist'}")
        seen.add(number)
        values[number - 1] = float(value)
    return int(float(words[0])) - 1


def _read_hdf5(path: Path, limit: MemoryLimit) -> list[tuple[Array, Array]]:
    """Groups `train` and `test` with `data` [N, 256], values 0 to 1, and `target` [N]."""
    if importlib.util.find_spec("h5py") is None:
        raise UserError(
            f"reading {str(path)!r} needs h5py; pip install h5py, or put usps.bz2 and usps.t.bz2 into its folder"
        )
    import h5py

    try:
        with h5py.File(path, "r") as file:
            parts = [
                (_read_array(path, file[part]["data"], limit), _read_array(path, file[part]["target"], limit))
                for part in ("train", "test")
            ]
    except UserError:
        raise
    # For a damaged file h5py raises exceptions without a common base class.
    except Exception as error:
        raise damaged_file_error(path, error) from error
    return [(_to_pixels(path, data), target) for data, target in parts]


def _read_array(path: Path, entry: Any, limit: MemoryLimit) -> Array:
    """An array stored in the file itself: other files, to which it may refer, are not opened."""
    import h5py

    if not isinstance(entry, h5py.Dataset) or entry.dtype.kind not in "uif" or entry.external or entry.is_virtual:
        raise damaged_file_error(path, "an entry is not an array of numbers")
    limit.check_array(entry.shape, np.dtype(np.float64).itemsize, f"data file {str(path)!r}")
    return np.asarray(entry)


def _to_pixels(path: Path, fractions: Array) -> Array:
    values = np.asarray(fractions, dtype=np.float64)
    has_width = math.prod(values.shape[1:]) == SIDE * SIDE and values.ndim > 1
    if not has_width or not (np.abs(values - 0.5) < 0.501).all():
        raise UserError(f"data file {str(path)!r} does not hold rows of 256 grey values; download it again")
    return np.rint(values * 255).clip(0, 255).astype(np.uint8).reshape(-1, SIDE, SIDE)
