"""USPS: digits from envelopes (J. Hull, 1994), as LIBSVM's text files or as one HDF5 file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from ...errors import UserError
from ...settings import DataSettings
from .checks import checked_source
from .reading import (
    UNREADABLE,
    damaged,
    find,
    read_bytes,
    require,
)
from .source import Array, Source

FOLDERS = ("", "usps", "USPS")
SIDE = 16


def load_usps(settings: DataSettings) -> Source:
    """The 7291 and 2007 digits of 16x16 pixels, white on black."""
    hdf5 = find(settings, FOLDERS, ["usps.h5"])
    if hdf5 is not None and find(settings, FOLDERS, ["usps.bz2", "usps"]) is None:
        where, (train, test) = hdf5, _read_hdf5(hdf5)
    else:
        paths = require(settings, FOLDERS, [["usps.bz2", "usps"], ["usps.t.bz2", "usps.t"]])
        where, (train, test) = paths[0].parent, (_read_libsvm(paths[0]), _read_libsvm(paths[1]))
    return checked_source(
        "usps",
        f"dataset usps in {str(where)!r}",
        x_train=train[0],
        y_train=train[1],
        x_test=test[0],
        y_test=test[1],
        class_names=[str(digit) for digit in range(10)],
    )


def _read_libsvm(path: Path) -> tuple[Array, Array]:
    """Lines of `label index:value ...`, labels 1 to 10, values -1 to 1; an index that is left out is 0."""
    lines = read_bytes(path).splitlines()
    values = np.zeros((len(lines), SIDE * SIDE), dtype=np.float32)
    labels = np.zeros(len(lines), dtype=np.int64)
    for row, line in enumerate(lines):
        try:
            numbers = np.array([float(word) for word in line.replace(b":", b" ").split()])
            labels[row] = int(numbers[0]) - 1
            places = numbers[1::2].astype(np.int64) - 1
            if len(places) and places.min() < 0:
                raise ValueError(f"pixel {places.min() + 1} does not exist")
            values[row, places] = numbers[2::2]
        except (ValueError, IndexError) as error:
            raise damaged(path, f"line {row + 1}: {error}") from error
    return _pixels(path, (values + 1) / 2), labels


def _read_hdf5(path: Path) -> list[tuple[Array, Array]]:
    """Groups `train` and `test` with `data` [N, 256], values 0 to 1, and `target` [N]."""
    if importlib.util.find_spec("h5py") is None:
        raise UserError(f"reading {str(path)!r} needs h5py; pip install h5py, or put usps.bz2 and usps.t.bz2 there")
    import h5py

    try:
        with h5py.File(path, "r") as file:
            parts = [(np.asarray(file[part]["data"]), np.asarray(file[part]["target"])) for part in ("train", "test")]
    except (*UNREADABLE, KeyError) as error:
        raise damaged(path, error) from error
    return [(_pixels(path, data.reshape(len(data), -1)), target) for data, target in parts]


def _pixels(path: Path, shares: Array) -> Array:
    values = np.asarray(shares, dtype=np.float64)
    if values.shape[1] != SIDE * SIDE or not (np.abs(values - 0.5) < 0.501).all():
        raise UserError(f"data file {str(path)!r} does not hold rows of 256 grey values; fetch it again")
    return np.rint(values * 255).clip(0, 255).astype(np.uint8).reshape(-1, SIDE, SIDE)
