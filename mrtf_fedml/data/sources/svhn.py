"""SVHN: house numbers from street view (Y. Netzer et al., 2011), as Stanford's .mat files of cropped digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import UserError
from ...settings import DataSettings
from .checks import checked_source
from .reading import damaged, require
from .source import Array, Source

FOLDERS = ("", "svhn", "SVHN")

#: The files number the digits as a telephone does: 0 comes after 9.
ZERO = 10


def load_svhn(settings: DataSettings) -> Source:
    """The 73257 and 26032 cropped digits; the `extra` ones are not used."""
    train, test = require(settings, FOLDERS, [["train_32x32.mat"], ["test_32x32.mat"]])
    (x_train, y_train), (x_test, y_test) = _read(train), _read(test)
    return checked_source(
        "svhn",
        f"dataset svhn in {str(train.parent)!r}",
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        class_names=[str(digit) for digit in range(10)],
    )


def _read(path: Path) -> tuple[Array, Array]:
    """Images [N, 32, 32, 3] and digits [N] of one file."""
    # Imported here, since no other dataset needs it.
    from scipy import io

    try:
        content = io.loadmat(path, variable_names=["X", "y"])
    # On a damaged file scipy raises whatever its parser stumbles on first, of no common kind.
    except Exception as error:
        raise damaged(path, error) from error
    for key in ("X", "y"):
        if key not in content:
            raise UserError(f"data file {str(path)!r} has no array {key!r}; take SVHN's format 2, cropped digits")
    images, digits = content["X"], content["y"].reshape(-1).astype(np.int64)
    # MATLAB drops a last axis of size one.
    images = images[..., None] if images.ndim == 3 else images
    if images.ndim != 4 or images.shape[2] != 3 or images.dtype != np.uint8:
        raise UserError(
            f"data file {str(path)!r}: X is {images.dtype} of shape {images.shape} and not uint8 of height, width, "
            "3, N; take SVHN's format 2, cropped digits"
        )
    if len(digits) and not 0 <= digits.min() <= digits.max() <= ZERO:
        raise UserError(f"data file {str(path)!r}: y holds {digits.min()} to {digits.max()} where 1 to 10 belong")
    return images.transpose(3, 0, 1, 2), np.where(digits == ZERO, 0, digits)
