"""The checks that every format's arrays pass before they become a `Source`.

Each failure is a `UserError` that names the origin and the array, and says what to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...errors import UserError
from ..names import printable, shown
from .csv_columns import Columns
from .source import (
    Array,
    Labels,
    Source,
    Users,
)

#: Letters of an id or a class's name: more fit no field of a table that others read.
LONGEST_NAME = 10_000
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
    features: list[str] | None = None,
    columns: Columns | None = None,
    unknown: bool = False,
) -> Source:
    """The arrays as a `Source`, or a `UserError` that names `origin` and the array at fault.

    The number of classes is that of `class_names` where they are given, else the largest of `y_train` plus
    one. It never depends on `y_test`. Names, ids and classes are made printable: they are written into files,
    which must not fail when the training is done. With `unknown` the classes of `y_test` may be -1, which no
    examiner marks.
    """
    for key, array in (("x_train", x_train), ("x_test", x_test)):
        check_inputs(origin, key, array)
    _check_fit(origin, x_train, x_test)
    train_labels = _labels(origin, "y_train", y_train, len(x_train))
    names = _class_names(origin, class_names, int(train_labels.max()) + 1)
    test_labels = None
    if y_test is not None:
        test_labels = _labels(origin, "y_test", y_test, len(x_test), ", or leave y_test out", -1 if unknown else 0)
        if test_labels.max() >= len(names):
            raise UserError(
                f"{origin}: y_test holds class {test_labels.max()}, but y_train knows only 0 to "
                f"{len(names) - 1}; correct it or leave y_test out"
            )
        if test_labels.max() < 0:
            test_labels = None
    _check_users(origin, users, len(x_train), len(x_test))
    return Source(
        printable(name),
        x_train,
        train_labels,
        x_test,
        test_labels,
        names,
        _ids(origin, ids, len(x_test)),
        users,
        tokens,
        augments,
        features if columns is None else columns.features,
        columns,
    )


def check_inputs(origin: str, key: str, array: Array) -> None:
    """A `UserError` where the array is no row of samples: not numbers, no sample, no features, or not finite."""
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


def _labels(origin: str, key: str, array: Array, samples: int, otherwise: str = "", least: int = 0) -> Labels:
    """The classes as int64 [samples], none below `least`; `otherwise` is a second remedy where there is one."""
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
    if array.min() < least:
        raise UserError(f"{origin}: {key} holds the negative class {int(array.min())}; {remedy}")
    if array.max() >= CLASS_LIMIT:
        raise UserError(f"{origin}: {key} holds the class {int(array.max())}, too large for a class number; {remedy}")
    return array.astype(np.int64)


def _check_users(origin: str, users: Users | None, clients: int, server: int) -> None:
    if users is None:
        return
    for key, own, samples, least in (("train", users.train, clients, 0), ("test", users.test, server, -1)):
        whole = isinstance(own, np.ndarray) and own.dtype.kind in "iu" and own.shape == (samples,)
        if not whole or not least <= own.min() <= own.max() < len(users.names):
            raise UserError(
                f"{origin}: users.{key} must hold {samples} whole numbers, one a sample, from {least} to "
                f"{len(users.names) - 1}: the places in users.names"
            )


def _class_names(origin: str, given: Sequence[Any] | Array | None, least: int) -> list[str]:
    if given is not None and np.ndim(given) == 1 and len(given) > CLASS_LIMIT:
        raise UserError(f"{origin}: class_names has {len(given)} names, too many for classes; give one name per class")
    names = _texts(origin, "class_names", range(max(least, 1)) if given is None else given)
    if len(names) < least:
        raise UserError(
            f"{origin}: class_names has {len(names)} names but y_train holds class {least - 1}; name every class"
        )
    if len(names) < 2:
        raise UserError(f"{origin}: y_train holds the single class 0; a classifier needs at least two")
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise UserError(f"{origin}: class_names has {shown(twice[0])} twice; give each class a name of its own")
    return names


def _ids(origin: str, given: Sequence[Any] | Array | None, samples: int) -> list[str]:
    if given is None:
        return [str(number) for number in range(samples)]
    # Before they become texts: there may be any number of them.
    if (not isinstance(given, np.ndarray) or given.ndim == 1) and len(given) != samples:
        raise UserError(f"{origin}: ids has {len(given)} entries but x_test has {samples}; give one id a sample")
    return _texts(origin, "ids", given)


def _texts(origin: str, key: str, given: Sequence[Any] | Array) -> list[str]:
    if isinstance(given, np.ndarray):
        if given.ndim != 1 or given.dtype.kind not in "USiu":
            raise UserError(f"{origin}: {key} must be a plain row of texts, not {given.dtype} of shape {given.shape}")
    elif wrong := [type(thing).__name__ for thing in given if not isinstance(thing, str | bytes | int | np.integer)]:
        raise UserError(f"{origin}: {key} must be a plain row of texts, but holds a {wrong[0]}")
    texts = texts_of(given)
    longest = max(texts, key=len, default="")
    if len(longest) > LONGEST_NAME:
        raise UserError(f"{origin}: {key} has {shown(longest)}, of {len(longest)} letters; give {LONGEST_NAME} at most")
    return texts


def texts_of(given: Iterable[Any]) -> list[str]:
    """Texts, bytes or whole numbers as printable texts.

    An array of texts is never made of a list: each would take the room of the longest.
    """
    things = given.tolist() if isinstance(given, np.ndarray) else given
    return [
        printable(thing.decode("utf-8", "surrogateescape") if isinstance(thing, bytes) else str(thing))
        for thing in things
    ]
