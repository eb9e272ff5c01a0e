"""Data that a program holds: anything that is samples in Python, as one array per party, in one order of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..errors import UserError
from ..randomness import forked
from .listing import listed
from .names import shown
from .server_set import read_server_set
from .sources.checks import check_inputs
from .sources.reading import first_line
from .sources.source import Array

#: Samples per read of a torch Dataset; it changes nothing but the speed.
_AT_ONCE = 256


def client_samples(client: Any, what: str, columns: Sequence[str] | None) -> tuple[Array, list[Any]]:
    """One client's samples [N, ...] and the N labels, as Python's own values.

    Args:
        client: a pair (x, y), a DataLoader, a torch Dataset, or any row of (x, y) batches.
        what: what it is called in messages.
        columns: the names of a table's columns, in the order that is wanted; None where tables have none.
    """
    if isinstance(client, tuple | list) and len(client) == 2 and not _is_batches(client):
        inputs, labels = samples(client[0], f"{what}'s x", columns), label_values(client[1], what)
    else:
        inputs, labels = _from_batches(client, what)
    if len(labels) != len(inputs):
        raise UserError(f"{what} has {len(inputs)} samples but {len(labels)} labels; give one label per sample")
    return inputs, labels


def server_samples(given: Any, columns: Sequence[str] | None) -> Array:
    """The server's samples [M, ...], in their own order; where batches have labels too, those are let go."""
    if isinstance(given, DataLoader | Dataset) or (isinstance(given, list | tuple) and _is_batches(given)):
        batches = given if not isinstance(given, Dataset) else DataLoader(given, batch_size=_AT_ONCE)
        try:
            return read_server_set(batches).inputs.numpy()
        except UserError as error:
            sentence = str(error).replace("the dataset's test_global", "x_server").replace("test_global", "x_server")
            raise UserError(sentence) from error
    return samples(given, "x_server", columns)


def samples(given: Any, what: str, columns: Sequence[str] | None = None) -> Array:
    """An array, a tensor, a table or nested lists as one checked array of numbers."""
    array = _array(given, what, columns)
    if array.dtype.kind in "OUS":
        raise UserError(
            f"{what} holds texts or things that are no numbers{_where(given)}; make numbers of them first "
            "(pandas.get_dummies does)"
        )
    check_inputs("label()", what, array)
    return array


def columns_of(given: Any) -> list[str] | None:
    """The names of a table's columns; None where there are none."""
    columns = getattr(given, "columns", None)
    return None if columns is None else [str(name) for name in columns]


def label_values(given: Any, what: str) -> list[Any]:
    """Labels as Python's own values: texts, whole numbers, truths."""
    array = _array(given, f"{what}'s y")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise UserError(
            f"{what}'s y has shape {array.shape}; give one label per sample (np.argmax(..., axis=1) makes them of "
            "one-hot rows)"
        )
    return [_plain(value, what, row) for row, value in enumerate(array.tolist())]


def _plain(value: Any, what: str, row: int) -> Any:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    missing = value is None or value == "" or value != value
    if missing:
        return None
    if isinstance(value, float):
        if not value.is_integer():
            raise UserError(f"{what}'s y: the label of sample {row} is {value}; labels are whole numbers or texts")
        return int(value)
    if not isinstance(value, str | int):
        raise UserError(
            f"{what}'s y: the label of sample {row} is a {type(value).__name__}; labels are whole numbers or texts"
        )
    return value


def _array(given: Any, what: str, columns: Sequence[str] | None = None) -> Array:
    if given is None:
        raise UserError(f"{what} is None; give an array")
    own = columns_of(given)
    if own is not None and columns is not None and own != list(columns):
        given = _in_order(given, own, columns, what)
    try:
        if isinstance(given, Tensor):
            plain = given.detach().cpu()
            return (plain.float() if plain.dtype in (torch.bfloat16, torch.float16) else plain).numpy()
        dense: Callable[[], Any] | None = getattr(given, "toarray", None)
        return np.asarray(given if dense is None else dense())
    # Rows of different lengths, or what another library cannot turn into an array.
    except Exception as error:
        raise UserError(f"{what} is no array ({first_line(error)}); give rows of the same length") from error


def _in_order(table: Any, own: list[str], columns: Sequence[str], what: str) -> Any:
    """The table with its columns in the order of the others': by their names, never by their places."""
    lacking, unknown = [name for name in columns if name not in own], [name for name in own if name not in columns]
    if lacking or unknown:
        which = f"lacks the column {listed(lacking)}" if lacking else f"has the column {listed(unknown)}, others do not"
        raise UserError(f"{what} {which}; give all parties the same features")
    return table.iloc[:, [own.index(name) for name in columns]]


def _where(given: Any) -> str:
    """Which column of a table is at fault."""
    if columns_of(given) is None:
        return ""
    wrong = [str(name) for name, kind in given.dtypes.items() if getattr(kind, "kind", "O") not in "uifb"]
    return f" (column {shown(wrong[0])})" if wrong else ""


def _is_batches(given: Sequence[Any]) -> bool:
    """Whether it is a row of (x, y) batches, and not one pair (x, y) of nested lists."""
    return bool(given) and all(
        isinstance(batch, tuple | list) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)
        for batch in given
    )


def _from_batches(client: Any, what: str) -> tuple[Array, list[Any]]:
    if isinstance(client, Dataset) and not isinstance(client, DataLoader):
        client = DataLoader(client, batch_size=_AT_ONCE)
    if isinstance(client, np.ndarray | Tensor | str | Mapping) or not isinstance(client, Iterable):
        raise UserError(
            f"{what} is a {type(client).__name__}; give a pair (x, y), or a DataLoader of (x, y) batches: its labels "
            "are what a client teaches"
        )
    inputs: list[Array] = []
    labels: list[Any] = []
    # A loader that shuffles draws the same order every time, and leaves the global random state as it was.
    with forked(0, "given client", what):
        for batch in client:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise UserError(f"{what} gives a {type(batch).__name__} and no pair (x, y); give pairs with labels")
            inputs.append(_array(batch[0], f"{what}'s x"))
            labels += label_values(batch[1], what)
    if not inputs:
        raise UserError(f"{what} has no samples; leave it out or give it some")
    if len({array.shape[1:] for array in inputs}) > 1:
        raise UserError(f"{what}'s batches have samples of different shapes; bring all to one shape")
    return samples(np.concatenate(inputs), f"{what}'s x"), labels
