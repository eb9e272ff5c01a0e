"""FEMNIST: handwritten digits and letters by writer (LEAF, from NIST's special database 19)."""

from __future__ import annotations

import string
from typing import Any

import numpy as np

from ...settings import DataSettings
from ..names import shown
from .leaf import load_leaf
from .source import Array, Labels, Source

FOLDERS = ("femnist", "FEMNIST", "FeMnist", "leaf/data/femnist", "")
SIDE = 28
CLASS_NAMES = [*string.digits, *string.ascii_uppercase, *string.ascii_lowercase]


def load_femnist(settings: DataSettings) -> Source:
    """28x28 grey images of 62 classes, dark on white as LEAF has them; a client is a writer."""
    return load_leaf(settings, FOLDERS, _convert, CLASS_NAMES)


def _convert(x: list[Any], y: list[Any]) -> tuple[Array, Labels]:
    # LEAF divided bytes by 255, so nothing is lost on the way back, and a quarter of the room suffices.
    values = np.asarray(x, dtype=np.float32).reshape(len(x), -1)
    if values.shape[1] != SIDE * SIDE:
        raise ValueError(f"a sample has {values.shape[1]} values and not 784")
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("a sample has values outside 0 to 1")
    # One by one: NumPy would cut off fractions, read texts, and take a row of classes for several samples'.
    wrong = [label for label in y if not isinstance(label, int | float) or label not in range(len(CLASS_NAMES))]
    if wrong:
        raise ValueError(f"a label is {shown(wrong[0])}, but there are 62 classes, from 0 to 61")
    return np.rint(values * 255).astype(np.uint8).reshape(-1, SIDE, SIDE), np.array(y, dtype=np.int64)
