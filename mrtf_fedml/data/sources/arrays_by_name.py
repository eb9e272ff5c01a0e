"""Images and classes out of a mapping whose keys every author chose anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ..listing import listed
from .reading import damaged
from .source import Array

_IMAGES = ("{}", "x_{}", "X_{}", "{}_x", "{}_images", "{}_data", "{}_X")
_LABELS = ("y_{}", "Y_{}", "{}_y", "{}_labels", "{}_label", "{}_targets", "{}_target")
_INNER_IMAGES = ("images", "image", "data", "x", "X")
_INNER_LABELS = ("labels", "label", "targets", "target", "y", "Y")


def arrays_of_part(path: Path, content: Any, part: str) -> tuple[Array, Array | None]:
    """The uint8 images and the classes of `train` or `test`; None where there are no classes.

    >>> import numpy as np
    >>> content = {"train": np.zeros((2, 28, 28, 3), np.uint8), "train_labels": np.array([3, 4])}
    >>> arrays_of_part(Path("mnistm.pkl"), content, "train")[1].tolist()
    [3, 4]
    """
    if not isinstance(content, Mapping):
        raise damaged(path, "it holds no mapping with the parts train and test")
    images, labels = _first(content, _IMAGES, part), _first(content, _LABELS, part)
    if isinstance(images, Mapping):
        images, labels = _first(images, _INNER_IMAGES), _first(images, _INNER_LABELS)
    elif isinstance(images, tuple | list) and len(images) == 2:
        images, labels = images
    if images is None:
        raise UserError(
            f"data file {str(path)!r} has no images under {part!r} (it holds {listed(content)}); take another copy"
        )
    # Lists are not made arrays of: a few that hold each other many times would fill any memory.
    if not isinstance(images, np.ndarray):
        raise damaged(path, f"its images under {part!r} are a {type(images).__name__} and no array")
    pixels = images
    if pixels.dtype.kind == "f" and pixels.size and pixels.min() >= 0 and pixels.max() <= 1:
        pixels = np.rint(pixels * 255).astype(np.uint8)
    if pixels.dtype != np.uint8 or pixels.ndim != 4:
        raise damaged(path, f"its images under {part!r} are {pixels.dtype} of shape {pixels.shape}")
    if labels is None:
        return pixels, None
    return pixels, _classes(path, labels, part)


def _classes(path: Path, labels: Any, part: str) -> Array:
    classes = labels if isinstance(labels, np.ndarray) else row_of_numbers(labels)
    if classes is None:
        raise damaged(path, f"its classes under {part!r} are neither an array nor a row of whole numbers")
    if classes.ndim == 2 and classes.shape[1] > 1:
        ones, others = (classes == 1).sum(axis=1), ((classes != 0) & (classes != 1)).sum(axis=1)
        if not ((ones == 1) & (others == 0)).all():
            raise damaged(path, f"its classes under {part!r} are rows that are not one-hot")
        return classes.argmax(axis=1)
    return classes


def row_of_numbers(things: Any) -> Array | None:
    """A list of whole numbers as an array; None where it is none.

    >>> row_of_numbers([3, 4]).tolist()
    [3, 4]
    """
    if not isinstance(things, list | tuple) or not all(isinstance(thing, int | np.integer) for thing in things):
        return None
    if not all(-(2**63) <= int(thing) < 2**63 for thing in things):
        return None
    return np.array([int(thing) for thing in things], dtype=np.int64)


def _first(mapping: Mapping[str, Any], names: Sequence[str], part: str = "") -> Any:
    return next((mapping[name.format(part)] for name in names if name.format(part) in mapping), None)
