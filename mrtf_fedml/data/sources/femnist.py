"""FEMNIST: handwritten digits and letters by writer (LEAF, from NIST's special database 19)."""

from __future__ import annotations

import string
from typing import Any

import numpy as np

from ...settings import DataSettings
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
    labels = np.asarray(y, dtype=np.int64).reshape(-1)
    if not ((labels >= 0) & (labels < len(CLASS_NAMES))).all():
        raise ValueError(f"its labels go from {labels.min()} to {labels.max()}, but there are 62 classes")
    return np.rint(values * 255).astype(np.uint8).reshape(-1, SIDE, SIDE), labels
