"""USPS: digits from envelopes (J. Hull, 1994), as LIBSVM's text files or as one HDF5 file."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ...settings import DataSettings
from .checks import checked_source
from .memory import Memory, memory_of
from .reading import (
    damaged,
    find,
    first_line,
    read_bytes,
    require,
)
from .source import Array, Source

FOLDERS = ("", "usps", "USPS")
SIDE = 16


def load_usps(settings: DataSettings) -> Source:
    """The 7291 and 2007 digits of 16x16 pixels, white on black."""
    memory = memory_of(settings)
    hdf5 = find(settings, FOLDERS, ["usps.h5"])
    if hdf5 is not None and find(settings, FOLDERS, ["usps.bz2", "usps"]) is None:
        where, (train, test) = hdf5, _read_hdf5(hdf5, memory)
    else:
        paths = require(settings, FOLDERS, [["usps.bz2", "usps"], ["usps.t.bz2", "usps.t"]])
        where, (train, test) = paths[0].parent, (_read_libsvm(paths[0], memory), _read_libsvm(paths[1], memory))
    return checked_source(
        "usps",
        f"dataset usps in {str(where)!r}",
        x_train=train[0],
        y_train=train[1],
        x_test=test[0],
        y_test=test[1],
        class_names=[str(digit) for digit in range(10)],
    )


def _read_libsvm(path: Path, memory: Memory) -> tuple[Array, Array]:
    """Lines of `label index:value ...`, labels 1 to 10, values -1 to 1; an index that is left out is 0."""
    lines = read_bytes(path, memory).splitlines()
    memory.check_array((len(lines), SIDE * SIDE), np.dtype(np.float64).itemsize, f"data file {str(path)!r}")
    values = np.zeros((len(lines), SIDE * SIDE), dtype=np.float32)
    labels = np.zeros(len(lines), dtype=np.int64)
    for row, line in enumerate(lines):
        try:
            labels[row] = _fill(values[row], line.split(maxsplit=SIDE * SIDE + 1))
        except (ValueError, IndexError) as error:
            raise damaged(path, f"line {row + 1}: {first_line(error)}") from error
    return _pixels(path, (values + 1) / 2), labels


def _fill(values: Array, words: list[bytes]) -> int:
    """Put a line's values into their places; returns the digit, which is one less than the line's label."""
    if not words or not words[0].strip(b"0123456789.") == b"" or float(words[0]) not in range(1, 11):
        raise ValueError(f"the label is {words[0][:20].decode('latin1') if words else ''!r} and not 1 to 10")
    filled = set()
    for word in words[1:]:
        place, value = word.split(b":")
        number = int(place)
        if not 1 <= number <= SIDE * SIDE or number in filled:
            raise ValueError(f"pixel {number} {'comes twice' if number in filled else 'does not exist'}")
        filled.add(number)
        values[number - 1] = float(value)
    return int(float(words[0])) - 1


def _read_hdf5(path: Path, memory: Memory) -> list[tuple[Array, Array]]:
    """Groups `train` and `test` with `data` [N, 256], values 0 to 1, and `target` [N]."""
    if importlib.util.find_spec("h5py") is None:
        raise UserError(f"reading {str(path)!r} needs h5py; pip install h5py, or put usps.bz2 and usps.t.bz2 there")
    import h5py

    try:
        with h5py.File(path, "r") as file:
            parts = [
                (_numbers(path, file[part]["data"], memory), _numbers(path, file[part]["target"], memory))
                for part in ("train", "test")
            ]
    except UserError:
        raise
    # On a damaged file HDF5 raises whatever it stumbles on first, of no common kind.
    except Exception as error:
        raise damaged(path, error) from error
    return [(_pixels(path, data), target) for data, target in parts]


def _numbers(path: Path, entry: Any, memory: Memory) -> Array:
    """An array of the file itself: its parts may lie in other files, which are not opened."""
    import h5py

    if not isinstance(entry, h5py.Dataset) or entry.dtype.kind not in "uif" or entry.external or entry.is_virtual:
        raise damaged(path, "an entry is no array of numbers")
    memory.check_array(entry.shape, np.dtype(np.float64).itemsize, f"data file {str(path)!r}")
    return np.asarray(entry)


def _pixels(path: Path, shares: Array) -> Array:
    values = np.asarray(shares, dtype=np.float64)
    wide = math.prod(values.shape[1:]) == SIDE * SIDE and values.ndim > 1
    if not wide or not (np.abs(values - 0.5) < 0.501).all():
        raise UserError(f"data file {str(path)!r} does not hold rows of 256 grey values; fetch it again")
    return np.rint(values * 255).clip(0, 255).astype(np.uint8).reshape(-1, SIDE, SIDE)
