"""`Source`, the samples of a dataset in any format, and the checks that its arrays pass.

Each failure is a `UserError` that names the origin and the array, and a remedy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import UserError
from ..formatting import escape, quote
from .csv_columns import Columns

Array = npt.NDArray[np.generic]
Labels = npt.NDArray[np.int64]

#: The maximum length of an id or a class name, so that other programs can read the tables.
MAX_NAME_LENGTH = 10_000
#: The upper bound of class numbers: a record number used as a class would need a classifier of that width.
CLASS_LIMIT = 100_000


@dataclass(frozen=True, eq=False)
class Users:
    """The user of each sample, in data by people or devices: FEMNIST's writers, Shakespeare's roles."""

    names: list[str]
    #: The user of each of the clients' samples [N], an index into `names`.
    train: Labels = field(repr=False)
    #: The user of each of the server's samples [M], -1 for none.
    test: Labels = field(repr=False)


@dataclass(frozen=True, eq=False)
class Source:
    """Samples as arrays: the clients' with labels, the server's with labels that only a `SealedEvaluator` may hold.

    N is the number of the clients' samples, M of the server's, C of classes.
    """

    name: str
    #: The clients' samples [N, ...]: uint8 images [N, H, W] or [N, H, W, channels], numbers of any shape, or texts
    #: [N], an array of strings.
    x_train: Array = field(repr=False)
    #: Their classes [N], in 0..C-1.
    y_train: Labels = field(repr=False)
    #: The server's samples [M, ...], of the shape and kind of `x_train`.
    x_test: Array = field(repr=False)
    #: Their true classes [M] if known, -1 for a sample whose class is not. Only a `SealedEvaluator` may receive them.
    y_test: Labels | None = field(repr=False)
    #: One name per class; their number is C.
    class_names: list[str]
    #: One identifier per sample of the server: a file name, a row's id, or the index.
    ids: list[str] = field(repr=False)
    #: The users of the samples, if known.
    users: Users | None = field(default=None, repr=False)
    #: The samples are rows of indices (letters, words) and stay integers.
    tokens: bool = False
    #: The samples are natural images: a mirrored or shifted one has the same class.
    augments: bool = False
    #: The names of a table's features, if it has any.
    features: list[str] | None = field(default=None, repr=False)
    #: How the columns of a file became those features.
    columns: Columns | None = field(default=None, repr=False)

    @property
    def class_num(self) -> int:
        """The number of classes C."""
        return len(self.class_names)


def make_source(
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
    allow_unknown: bool = False,
) -> Source:
    """The validated arrays as a `Source`, or a `UserError` that names `origin` and the array.

    The number of classes is that of `class_names`, else the maximum of `y_train` plus one. It never depends on
    `y_test`. Names, ids and class names are escaped, so that writing them to files cannot fail after the training.
    With `allow_unknown` the classes of `y_test` may be -1, which the evaluator does not score.
    """
    for key, array in (("x_train", x_train), ("x_test", x_test)):
        check_samples(origin, key, array)
    _check_same_kind(origin, x_train, x_test)
    train_labels = _check_labels(origin, "y_train", y_train, len(x_train))
    checked_names = _check_class_names(origin, class_names, int(train_labels.max()) + 1)
    test_labels = None
    if y_test is not None:
        minimum = -1 if allow_unknown else 0
        test_labels = _check_labels(origin, "y_test", y_test, len(x_test), ", or leave y_test out", minimum)
        if test_labels.max() >= len(checked_names):
            raise UserError(
                f"{origin}: y_test holds class {test_labels.max()}, but y_train has only 0 to "
                f"{len(checked_names) - 1}; correct it or leave y_test out"
            )
        if test_labels.max() < 0:
            test_labels = None
    _check_users(origin, users, len(x_train), len(x_test))
    return Source(
        escape(name),
        x_train,
        train_labels,
        x_test,
        test_labels,
        checked_names,
        _check_ids(origin, ids, len(x_test)),
        users,
        tokens,
        augments,
        features if columns is None else columns.features,
        columns,
    )


def is_text(array: Array) -> bool:
    """Whether the samples are texts: an array [N] of strings.

    >>> is_text(np.array(["a", "b"])), is_text(np.array([["a"]])), is_text(np.zeros((2, 3)))
    (True, False, False)
    """
    return array.ndim == 1 and array.dtype.kind in "OU"


def check_samples(origin: str, key: str, array: Array) -> None:
    """Raise a `UserError` unless the array has texts, or finite numbers with a feature axis; at least one sample."""
    if is_text(array) and array.size:
        for row, text in enumerate(array.tolist()):
            if not isinstance(text, str) or not text.strip():
                problem = "is empty" if isinstance(text, str) else f"is a {type(text).__name__} and not a text"
                raise UserError(f"{origin}: sample {row} of {key} {problem}; fill it or leave the sample out")
        return
    if array.dtype.kind not in "uifb":
        raise UserError(f"{origin}: {key} holds {array.dtype} instead of numbers; use uint8 images or float features")
    if array.size == 0:
        raise UserError(f"{origin}: {key} is empty (shape {array.shape}); provide at least one sample")
    if array.ndim < 2:
        raise UserError(
            f"{origin}: {key} has shape {array.shape}; provide N rows of features, or images as N,H,W or N,H,W,C"
        )
    if array.dtype.kind == "f":
        # Training is in float32, in which a large float64 is infinite too.
        with np.errstate(over="ignore"):
            is_finite = np.isfinite(array.astype(np.float32, copy=False)).reshape(len(array), -1).all(axis=1)
        if not is_finite.all():
            raise UserError(
                f"{origin}: {key} holds NaN or infinite values (first in sample {int(np.argmin(is_finite))}); "
                "remove or fill them"
            )


def _check_same_kind(origin: str, x_train: Array, x_test: Array) -> None:
    if x_train.shape[1:] != x_test.shape[1:]:
        raise UserError(
            f"{origin}: a sample of x_train has shape {x_train.shape[1:]} but one of x_test "
            f"{x_test.shape[1:]}; bring both to the same shape"
        )
    if (x_train.dtype == np.uint8) != (x_test.dtype == np.uint8):
        raise UserError(
            f"{origin}: x_train holds {x_train.dtype} but x_test {x_test.dtype}, and only uint8 images are rescaled; "
            "use the same type for both"
        )


def _check_labels(origin: str, key: str, array: Array, samples: int, alternative: str = "", minimum: int = 0) -> Labels:
    """The classes as int64 [samples], none below `minimum`; `alternative` is a second remedy for messages."""
    remedy = f"number the classes 0, 1, 2, ...{alternative}"
    if array.size == 0:
        raise UserError(f"{origin}: {key} is empty; provide the class of each sample{alternative}")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise UserError(
            f"{origin}: {key} has shape {array.shape}; provide one class number per sample (np.argmax(..., "
            "axis=1) converts one-hot rows)"
        )
    if len(array) != samples:
        raise UserError(
            f"{origin}: {key} has {len(array)} entries but x{key[1:]} has {samples}; provide one class per sample"
        )
    if array.dtype.kind not in "uifb":
        raise UserError(f"{origin}: {key} holds {array.dtype} instead of class numbers; {remedy}")
    # The remainder of NaN and of infinity is NaN, so they do not count as integers.
    with np.errstate(invalid="ignore"):
        is_integer = array.dtype.kind != "f" or bool((np.mod(array.astype(np.float64), 1.0) == 0).all())
    if not is_integer:
        raise UserError(f"{origin}: {key} holds values that are not integers; {remedy}")
    if array.min() < minimum:
        raise UserError(f"{origin}: {key} holds the negative class {int(array.min())}; {remedy}")
    if array.max() >= CLASS_LIMIT:
        raise UserError(f"{origin}: {key} holds the class {int(array.max())}, too large for a class number; {remedy}")
    return array.astype(np.int64)


def _check_users(origin: str, users: Users | None, clients: int, server: int) -> None:
    if users is None:
        return
    for key, own, samples, minimum in (("train", users.train, clients, 0), ("test", users.test, server, -1)):
        is_index = isinstance(own, np.ndarray) and own.dtype.kind in "iu" and own.shape == (samples,)
        if not is_index or not minimum <= own.min() <= own.max() < len(users.names):
            raise UserError(
                f"{origin}: users.{key} must hold {samples} integers, one per sample, from {minimum} to "
                f"{len(users.names) - 1}: indices into users.names"
            )


def _check_class_names(origin: str, names: Sequence[Any] | Array | None, minimum: int) -> list[str]:
    if names is not None and np.ndim(names) == 1 and len(names) > CLASS_LIMIT:
        raise UserError(f"{origin}: class_names has {len(names)} names, which is too many; provide one name per class")
    strings = _check_strings(origin, "class_names", range(max(minimum, 1)) if names is None else names)
    if len(strings) < minimum:
        raise UserError(
            f"{origin}: class_names has {len(strings)} names but y_train holds class {minimum - 1}; name every class"
        )
    if len(strings) < 2:
        raise UserError(f"{origin}: y_train holds the single class 0; a classifier needs at least two")
    duplicates = [name for name, count in Counter(strings).items() if count > 1]
    if duplicates:
        raise UserError(f"{origin}: class_names has {quote(duplicates[0])} twice; give each class its own name")
    return strings


def _check_ids(origin: str, ids: Sequence[Any] | Array | None, samples: int) -> list[str]:
    if ids is None:
        return [str(number) for number in range(samples)]
    # Before the conversion to strings, since there may be any number of them.
    if (not isinstance(ids, np.ndarray) or ids.ndim == 1) and len(ids) != samples:
        raise UserError(f"{origin}: ids has {len(ids)} entries but x_test has {samples}; provide one id per sample")
    return _check_strings(origin, "ids", ids)


def _check_strings(origin: str, key: str, values: Sequence[Any] | Array) -> list[str]:
    if isinstance(values, np.ndarray):
        if values.ndim != 1 or values.dtype.kind not in "USiu":
            raise UserError(f"{origin}: {key} must be a list of strings, not {values.dtype} of shape {values.shape}")
    elif wrong := [type(value).__name__ for value in values if not isinstance(value, str | bytes | int | np.integer)]:
        raise UserError(f"{origin}: {key} must be a list of strings, but holds a {wrong[0]}")
    strings = to_strings(values)
    longest = max(strings, key=len, default="")
    if len(longest) > MAX_NAME_LENGTH:
        raise UserError(
            f"{origin}: {key} has {quote(longest)}, of {len(longest)} characters; use at most {MAX_NAME_LENGTH}"
        )
    return strings


def to_strings(values: Iterable[Any]) -> list[str]:
    """Strings, bytes or integers as escaped strings.

    A list is never converted to an array of strings, in which each would need the memory of the longest.
    """
    plain = values.tolist() if isinstance(values, np.ndarray) else values
    return [
        escape(value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)) for value in plain
    ]
