"""The checks that every format's arrays pass before they become a `Source`.

Each failure is a `UserError` that names the origin and the array, and says what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import UserError
from .source import (
    Array,
    Labels,
    Source,
    Users,
)

#: No class number may reach this: a record number taken for a class would ask for a classifier of that width.
CLASS_LIMIT = 100_000


def checked_source(
    name: str,
    origin: str,
    *,
    x_train: Array,
    y_train: Array,
    x_test: Array,
    y_test: Array | None = None,
    class_names: Sequence[Any] | Array | None = None,
    ids: Sequence[Any] | Array | None = None,
    users: Users | None = None,
    tokens: bool = False,
    augments: bool = False,
) -> Source:
    """The arrays as a `Source`, or a `UserError` that names `origin` and the array at fault.

    The number of classes is that of `class_names` where they are given, else the largest of `y_train` plus
    one. It never depends on `y_test`.
    """
    for key, array in (("x_train", x_train), ("x_test", x_test)):
        _check_inputs(origin, key, array)
    _check_fit(origin, x_train, x_test)
    train_labels = _labels(origin, "y_train", y_train, len(x_train))
    names = _class_names(origin, class_names, int(train_labels.max()) + 1)
    test_labels = None
    if y_test is not None:
        test_labels = _labels(origin, "y_test", y_test, len(x_test), ", or leave y_test out")
        if test_labels.max() >= len(names):
            raise UserError(
                f"{origin}: y_test holds class {test_labels.max()}, but y_train knows only 0 to "
                f"{len(names) - 1}; correct it or leave y_test out"
            )
    sample_ids = _texts(origin, "ids", range(len(x_test)) if ids is None else ids)
    if len(sample_ids) != len(x_test):
        raise UserError(
            f"{origin}: ids has {len(sample_ids)} entries but x_test has {len(x_test)}; give one id a sample"
        )
    return Source(name, x_train, train_labels, x_test, test_labels, names, sample_ids, users, tokens, augments)


def _check_inputs(origin: str, key: str, array: Array) -> None:
    if array.dtype.kind not in "uifb":
        raise UserError(f"{origin}: {key} holds {array.dtype} instead of numbers; give uint8 images or float features")
    if array.size == 0:
        raise UserError(f"{origin}: {key} is empty (shape {array.shape}); give at least one sample")
    if array.ndim < 2:
        raise UserError(
            f"{origin}: {key} has shape {array.shape}; give N rows of features, or images as N,H,W or N,H,W,C"
        )
    if array.dtype.kind == "f":
        # Training is in float32, in which a large float64 is infinite too.
        with np.errstate(over="ignore"):
            finite = np.isfinite(array.astype(np.float32, copy=False)).reshape(len(array), -1).all(axis=1)
        if not finite.all():
            raise UserError(
                f"{origin}: {key} holds NaN or infinite values (first in sample {int(np.argmin(finite))}); "
                "remove or fill them"
            )


def _check_fit(origin: str, x_train: Array, x_test: Array) -> None:
    if x_train.shape[1:] != x_test.shape[1:]:
        raise UserError(
            f"{origin}: a sample of x_train has shape {x_train.shape[1:]} but one of x_test "
            f"{x_test.shape[1:]}; bring both to the same shape"
        )
    if (x_train.dtype == np.uint8) != (x_test.dtype == np.uint8):
        raise UserError(
            f"{origin}: x_train holds {x_train.dtype} but x_test {x_test.dtype}, and uint8 images are scaled "
            "where other numbers are not; give both the same type"
        )


def _labels(origin: str, key: str, array: Array, samples: int, otherwise: str = "") -> Labels:
    """The classes as int64 [samples]; `otherwise` is a second remedy where there is one."""
    remedy = f"number the classes 0, 1, 2, ...{otherwise}"
    if array.size == 0:
        raise UserError(f"{origin}: {key} is empty; give the class of each sample{otherwise}")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise UserError(
            f"{origin}: {key} has shape {array.shape}; give one class number a sample (np.argmax(..., "
            "axis=1) makes them of one-hot rows)"
        )
    if len(array) != samples:
        raise UserError(
            f"{origin}: {key} has {len(array)} entries but x{key[1:]} has {samples}; give one class a sample"
        )
    if array.dtype.kind not in "uifb":
        raise UserError(f"{origin}: {key} holds {array.dtype} instead of class numbers; {remedy}")
    # The remainder of NaN and of infinity is NaN, so they are not whole either.
    with np.errstate(invalid="ignore"):
        whole = array.dtype.kind != "f" or bool((np.mod(array.astype(np.float64), 1.0) == 0).all())
    if not whole:
        raise UserError(f"{origin}: {key} holds values that are not whole numbers; {remedy}")
    if array.min() < 0:
        raise UserError(f"{origin}: {key} holds the negative class {int(array.min())}; {remedy}")
    if array.max() >= CLASS_LIMIT:
        raise UserError(f"{origin}: {key} holds the class {int(array.max())}, too large for a class number; {remedy}")
    return array.astype(np.int64)


def _class_names(origin: str, given: Sequence[Any] | Array | None, least: int) -> list[str]:
    names = _texts(origin, "class_names", range(max(least, 1)) if given is None else given)
    if len(names) < least:
        raise UserError(
            f"{origin}: class_names has {len(names)} names but y_train holds class {least - 1}; name every class"
        )
    if len(names) < 2:
        raise UserError(f"{origin}: y_train holds the single class 0; a classifier needs at least two")
    if len(set(names)) != len(names):
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        raise UserError(f"{origin}: class_names has {twice!r} twice; give each class a name of its own")
    return names


def _texts(origin: str, key: str, given: Sequence[Any] | Array) -> list[str]:
    array = np.asarray(given)
    if array.ndim != 1 or array.dtype.kind not in "USiu":
        raise UserError(f"{origin}: {key} must be a plain row of texts, not {array.dtype} of shape {array.shape}")
    if array.dtype.kind == "S":
        return [text.decode("utf-8", errors="replace") for text in array.tolist()]
    return [str(text) for text in array.tolist()]
