"""A run's dataset from a program's own arrays, tensors, tables or loaders, one per party."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..config import RunSettings
from ..errors import UserError
from ..rng import fork_rng
from .data_frames import (
    column_names,
    drop_columns,
    encode_table,
    is_data_frame,
    is_numeric,
    non_numeric_columns,
    reorder_columns,
    survey_tables,
)
from .dataset import TransductiveDataset
from .formatting import format_list, quote
from .known_labels import KnownLabels
from .loader import from_source
from .server_set import read_test_global
from .sources.csv_columns import Columns
from .sources.files import first_line
from .sources.source import Array, Labels, Users, check_samples, is_text, make_source

#: The value of `data_args.dataset` for in-memory data.
ARRAYS = "arrays"

#: Samples per batch of a torch Dataset; it affects only the speed.
_BATCH_SIZE = 256


def list_clients(clients: Any) -> list[Any]:
    """The clients as a list with one entry each."""
    if clients is None or isinstance(clients, str | bytes) or not isinstance(clients, Iterable):
        raise UserError("label() needs clients: a list with a pair (x, y) for each of them")
    entries = list(clients.values()) if isinstance(clients, Mapping) else list(clients)
    if not entries:
        raise UserError("clients is empty; pass a pair (x, y) for each client")
    if len(entries) == 2 and all(isinstance(part, np.ndarray) or hasattr(part, "columns") for part in entries):
        raise UserError("clients is one pair (x, y); pass a list of pairs, [(x, y), ...], one for each client")
    return entries


def from_arrays(
    x_server: Any,
    clients: Sequence[Any],
    settings: RunSettings,
    *,
    y_server: Any = None,
    ids: Any = None,
    classes: Iterable[Any] | None = None,
    tokens: bool = False,
) -> tuple[TransductiveDataset, list[Any]]:
    """The dataset of a run, and the caller's label of each class.

    Args:
        x_server: the server's samples.
        clients: each client's samples and labels.
        settings: the run's settings; the number of clients is that of `clients`.
        y_server: the server's true labels. All of them are for the evaluator alone; if some are missing (None, NaN, or
            -1 where it is no class), the others are known labels (`KnownLabels`).
        ids: the identifiers of the server's samples; by default the index of a table.
        classes: all labels, if the clients do not have all of them.
        tokens: the samples are rows of indices of letters or words.
    """
    ignored = settings.data.ignore_columns
    clients = [_without_columns(client, ignored) for client in clients]
    x_server = drop_columns(x_server, ignored)
    names, columns = _table_columns(clients, settings.data.fill_missing)
    parts = [client_arrays(client, f"clients[{index}]", names, columns) for index, client in enumerate(clients)]
    arrays, server = [inputs for inputs, _ in parts], server_array(x_server, names, columns)
    _check_same_kind(arrays, server)
    labels = [_require_labels(own, f"clients[{index}]") for index, (_, own) in enumerate(parts)]
    class_labels = _class_labels(labels, classes)
    class_index = {value: index for index, value in enumerate(class_labels)}
    if ids is None and column_names(x_server) is not None:
        ids = [str(name) for name in x_server.index]
    true_labels = None if y_server is None else _true_labels(y_server, class_index, len(server))
    # A complete list is there to score with; a list with gaps are labels that the server has.
    is_partial = true_labels is not None and -1 in true_labels.tolist()
    source = make_source(
        ARRAYS,
        "label()",
        x_train=np.concatenate(arrays),
        y_train=_to_class_indices([value for own in labels for value in own], class_index, "y"),
        x_test=server,
        y_test=None if is_partial else true_labels,
        class_names=[str(value) for value in class_labels],
        ids=None if ids is None else list(ids),
        users=Users(
            [str(index) for index in range(len(clients))],
            np.repeat(np.arange(len(clients)), [len(array) for array in arrays]).astype(np.int64),
            np.full(len(server), -1, dtype=np.int64),
        ),
        tokens=tokens,
        features=names,
        columns=columns,
        allow_unknown=True,
    )
    dataset = from_source(source, settings)
    if is_partial and true_labels is not None:
        if settings.data.labels_file is not None:
            raise UserError("y_server has gaps, so it has labels as labels_file has; give one of them")
        dataset.known_labels = KnownLabels.from_array(true_labels)
    return dataset, class_labels


def _without_columns(client: Any, ignored: Sequence[str]) -> Any:
    is_pair = isinstance(client, tuple | list) and len(client) == 2
    return (drop_columns(client[0], ignored), client[1]) if ignored and is_pair else client


def _table_columns(clients: Sequence[Any], fill: bool) -> tuple[list[str] | None, Columns | None]:
    """The column names of the clients' tables, None for arrays; and how they are encoded, None for plain numbers."""
    first = clients[0][0] if isinstance(clients[0], tuple | list) and clients[0] else clients[0]
    names = column_names(first)
    if names is None:
        return None, None
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise UserError(f"clients[0]'s x has the column {format_list(duplicates)} twice; name each column once")
    tables = [
        (f"clients[{index}]'s x", client[0])
        for index, client in enumerate(clients)
        if isinstance(client, tuple | list) and len(client) == 2 and is_data_frame(client[0])
    ]
    return names, survey_tables(tables, fill) if tables else None


def client_arrays(
    client: Any, what: str, names: Sequence[str] | None, columns: Columns | None = None
) -> tuple[Array, list[Any]]:
    """One client's samples [N, ...] and N labels as Python values.

    Args:
        client: a pair (x, y), a DataLoader, a torch Dataset, or an iterable of (x, y) batches.
        what: the client's name in messages.
        names: the column names of a table, in the required order; None for arrays.
        columns: how the columns of a table are encoded; None if they are numbers.
    """
    if isinstance(client, tuple | list) and len(client) == 2 and not _is_batches(client):
        inputs, labels = to_array(client[0], f"{what}'s x", names, columns), label_values(client[1], what)
    else:
        inputs, labels = _read_batches(client, what)
    if len(labels) != len(inputs):
        raise UserError(f"{what} has {len(inputs)} samples but {len(labels)} labels; pass one label per sample")
    return inputs, labels


def server_array(samples: Any, names: Sequence[str] | None, columns: Columns | None = None) -> Array:
    """The server's samples [M, ...], in their own order; labels of batches are discarded."""
    if isinstance(samples, DataLoader | Dataset) or (isinstance(samples, list | tuple) and _is_batches(samples)):
        batches = samples if not isinstance(samples, Dataset) else DataLoader(samples, batch_size=_BATCH_SIZE)
        try:
            return read_test_global(batches).inputs.numpy()
        except UserError as error:
            message = str(error).replace("the dataset's test_global", "x_server").replace("test_global", "x_server")
            raise UserError(message) from error
    return to_array(samples, "x_server", names, columns)


def to_array(samples: Any, what: str, names: Sequence[str] | None = None, columns: Columns | None = None) -> Array:
    """An array, a tensor, a table, nested lists or a list of strings as one validated array.

    Args:
        samples: N samples.
        what: their name in messages.
        names: the column names of a table, in the required order.
        columns: how the columns of a table are encoded; None if they are numbers.
    """
    if is_data_frame(samples) and columns is None and names is not None:
        samples = reorder_columns(samples, names, what)
        # The clients' columns are numbers, so a missing value or a string here is an error that names its place.
        columns = None if is_numeric(samples) else Columns(list(names))
    if is_data_frame(samples) and columns is not None:
        array: Array = encode_table(samples, columns, what)
    elif isinstance(samples, list | tuple) and any(isinstance(entry, str) for entry in samples):
        # NumPy would make strings of the numbers among them, and all as long as the longest.
        array = np.array(samples, dtype=object)
    else:
        array = _convert_array(samples, what, names)
    if is_text(array) and all(isinstance(text, str) for text in array.tolist()):
        array = array.astype(object)
    elif array.dtype.kind in "OUS":
        column = f" (column {quote(non_numeric_columns(samples)[0])})" if is_data_frame(samples) else ""
        raise UserError(
            f"{what} holds strings or other objects{column}; pass numbers, or pass all parties' samples as pandas "
            "tables with the same columns"
        )
    check_samples("the samples", what, array)
    return array


def label_values(labels: Any, what: str) -> list[Any]:
    """Labels as Python values: strings, integers, booleans; None for a missing one."""
    array = _convert_array(labels, f"{what}'s y")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise UserError(
            f"{what}'s y has shape {array.shape}; pass one label per sample (np.argmax(..., axis=1) converts one-hot "
            "rows)"
        )
    return [_label_value(value, what, row) for row, value in enumerate(array.tolist())]


def _label_value(value: Any, what: str, row: int) -> Any:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    # pandas.NA has no truth value.
    is_missing = value is None or type(value).__name__ in ("NAType", "NaTType") or value == "" or value != value
    if is_missing:
        return None
    if isinstance(value, float):
        if not value.is_integer():
            raise UserError(f"{what}'s y: the label of sample {row} is {value}; labels must be integers or strings")
        return int(value)
    if not isinstance(value, str | int):
        raise UserError(
            f"{what}'s y: the label of sample {row} is a {type(value).__name__}; labels must be integers or strings"
        )
    return value


def _convert_array(values: Any, what: str, columns: Sequence[str] | None = None) -> Array:
    if values is None:
        raise UserError(f"{what} is None; pass an array")
    if columns is not None and is_data_frame(values):
        values = reorder_columns(values, columns, what)
    try:
        if isinstance(values, Tensor):
            tensor = values.detach().cpu()
            return (tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor).numpy()
        to_dense: Callable[[], Any] | None = getattr(values, "toarray", None)
        return np.asarray(values if to_dense is None else to_dense())
    # Rows of different lengths, or a type of another library that does not convert.
    except Exception as error:
        raise UserError(f"{what} is not an array ({first_line(error)}); pass rows of the same length") from error


def _is_batches(values: Sequence[Any]) -> bool:
    """Whether it is a sequence of (x, y) batches, and not one pair (x, y) of nested lists."""
    return bool(values) and all(
        isinstance(batch, tuple | list) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)
        for batch in values
    )


def _read_batches(client: Any, what: str) -> tuple[Array, list[Any]]:
    if isinstance(client, Dataset) and not isinstance(client, DataLoader):
        client = DataLoader(client, batch_size=_BATCH_SIZE)
    if isinstance(client, np.ndarray | Tensor | str | Mapping) or not isinstance(client, Iterable):
        raise UserError(
            f"{what} is a {type(client).__name__} without labels; pass a pair (x, y), or a DataLoader of (x, y) batches"
        )
    inputs: list[Array] = []
    labels: list[Any] = []
    # A loader that shuffles draws the same order every time, and the global random state is restored.
    with fork_rng(0, "given client", what):
        for batch in client:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise UserError(f"{what} yields a {type(batch).__name__} and not a pair (x, y); pass pairs with labels")
            inputs.append(_convert_array(batch[0], f"{what}'s x"))
            labels += label_values(batch[1], what)
    if not inputs:
        raise UserError(f"{what} has no samples; leave it out or add some")
    if len({array.shape[1:] for array in inputs}) > 1:
        raise UserError(f"{what}'s batches have samples of different shapes; bring all to one shape")
    return to_array(np.concatenate(inputs), f"{what}'s x"), labels


def _check_same_kind(arrays: Sequence[Array], server: Array) -> None:
    first = arrays[0]
    for what, array in [*((f"clients[{index}]", array) for index, array in enumerate(arrays)), ("x_server", server)]:
        if array.shape[1:] != first.shape[1:]:
            raise UserError(
                f"a sample of {what} has shape {array.shape[1:]} but one of clients[0] {first.shape[1:]}; give all "
                "parties the same features"
            )
        if (array.dtype == np.uint8) != (first.dtype == np.uint8):
            raise UserError(
                f"{what} holds {array.dtype} but clients[0] {first.dtype}, and only uint8 images are rescaled; give "
                "all parties the same type"
            )


def _require_labels(labels: list[Any], what: str) -> list[Any]:
    missing = [row for row, value in enumerate(labels) if value is None]
    if missing:
        raise UserError(f"{what}'s y: the label of sample {missing[0]} is missing; leave such samples out")
    return labels


def _class_labels(labels: Sequence[Sequence[Any]], classes: Iterable[Any] | None) -> list[Any]:
    """All labels in the order of their class indices."""
    present = {value for own in labels for value in own}
    if classes is not None:
        values = label_values(list(classes), "classes")
        unknown = sorted(present - set(values), key=str)
        if unknown:
            raise UserError(f"the clients have the label {quote(unknown[0])}, which is not in classes; add it")
        return values
    if -1 in present and 0 in present:
        raise UserError(
            "the clients have the label -1 as well as 0 and others, which often marks a missing label; leave such "
            "samples out, or list -1 in classes=[...] if it is a class"
        )
    values = sorted(present, key=lambda value: (isinstance(value, str), value))
    if len(values) < 2:
        raise UserError(
            f"all clients have the single label {quote(values[0])}; a classifier needs at least two (add others with "
            "classes=[...])"
        )
    return values


def _to_class_indices(values: Sequence[Any], class_index: Mapping[Any, int], what: str) -> Array:
    unknown = sorted({str(value) for value in values if value not in class_index})
    if unknown:
        raise UserError(f"{what} has the label {format_list(unknown)}, which no client has; correct it or leave it out")
    return np.array([class_index[value] for value in values], dtype=np.int64)


def _true_labels(labels: Any, class_index: Mapping[Any, int], samples: int) -> Labels:
    values = [None if value == -1 and -1 not in class_index else value for value in label_values(labels, "server")]
    if len(values) != samples:
        raise UserError(f"y_server has {len(values)} labels but x_server {samples} samples; pass one per sample")
    known = _to_class_indices([value for value in values if value is not None], class_index, "y_server")
    true_labels = np.full(samples, -1, dtype=np.int64)
    true_labels[[value is not None for value in values]] = known
    return true_labels
