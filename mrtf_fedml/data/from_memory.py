"""A run's data from a program's own arrays: the clients as they are given, their labels numbered, the server's set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import UserError
from ..settings import RunSettings
from .dataset import TransductiveDataset
from .given import client_samples, columns_of, label_values, server_samples
from .listing import listed
from .names import shown
from .sources.checks import checked_source
from .sources.source import Array, Users
from .transductive import from_source

#: What `data_args.dataset` is for data that a program holds.
ARRAYS = "arrays"


def clients_of(given: Any) -> list[Any]:
    """The clients, one entry each."""
    if given is None or isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise UserError("label() needs clients: a list with a pair (x, y) for each of them")
    clients = list(given.values()) if isinstance(given, Mapping) else list(given)
    if not clients:
        raise UserError("clients is empty; give a pair (x, y) for each client")
    if len(clients) == 2 and all(isinstance(part, np.ndarray) or hasattr(part, "columns") for part in clients):
        raise UserError("clients is one pair (x, y); give a list of pairs, [(x, y), ...], one for each client")
    return clients


def from_memory(
    x_server: Any,
    clients: Sequence[Any],
    settings: RunSettings,
    *,
    y_server: Any = None,
    ids: Any = None,
    classes: Iterable[Any] | None = None,
    tokens: bool = False,
) -> tuple[TransductiveDataset, list[Any]]:
    """The data of a run, and the label of each class in the caller's own values.

    Args:
        x_server: the server's samples.
        clients: each client's samples and labels.
        settings: the run's; how many clients there are, `clients` says.
        y_server: the server's true labels where they are known, for an examiner alone; None for one that is not.
        ids: the server's names for its samples; the rows' names where `x_server` is a table.
        classes: every label there may be, where the clients do not have them all.
        tokens: the samples are rows of indices, of letters or words.
    """
    first = clients[0][0] if isinstance(clients[0], tuple | list) and clients[0] else clients[0]
    columns = columns_of(first)
    parts = [client_samples(client, f"clients[{place}]", columns) for place, client in enumerate(clients)]
    arrays, server = [inputs for inputs, _ in parts], server_samples(x_server, columns)
    _check_alike(arrays, server)
    labels = [_complete(own, f"clients[{place}]") for place, (_, own) in enumerate(parts)]
    values = _classes(labels, classes)
    number = {value: place for place, value in enumerate(values)}
    if ids is None and columns_of(x_server) is not None:
        ids = [str(name) for name in x_server.index]
    source = checked_source(
        ARRAYS,
        "label()",
        x_train=np.concatenate(arrays),
        y_train=_numbered([value for own in labels for value in own], number, "y"),
        x_test=server,
        y_test=None if y_server is None else _true_labels(y_server, number, len(server)),
        class_names=[str(value) for value in values],
        ids=None if ids is None else list(ids),
        users=Users(
            [str(place) for place in range(len(clients))],
            np.repeat(np.arange(len(clients)), [len(array) for array in arrays]).astype(np.int64),
            np.full(len(server), -1, dtype=np.int64),
        ),
        tokens=tokens,
        features=columns,
        unknown=True,
    )
    return from_source(source, settings), values


def _check_alike(arrays: Sequence[Array], server: Array) -> None:
    first = arrays[0]
    for what, array in [*((f"clients[{place}]", array) for place, array in enumerate(arrays)), ("x_server", server)]:
        if array.shape[1:] != first.shape[1:]:
            raise UserError(
                f"a sample of {what} has shape {array.shape[1:]} but one of clients[0] {first.shape[1:]}; give all "
                "parties the same features"
            )
        if (array.dtype == np.uint8) != (first.dtype == np.uint8):
            raise UserError(
                f"{what} holds {array.dtype} but clients[0] {first.dtype}, and uint8 images are scaled where other "
                "numbers are not; give all the same type"
            )


def _complete(labels: list[Any], what: str) -> list[Any]:
    missing = [row for row, value in enumerate(labels) if value is None]
    if missing:
        raise UserError(f"{what}'s y: the label of sample {missing[0]} is missing; leave such samples out")
    return labels


def _classes(labels: Sequence[Sequence[Any]], given: Iterable[Any] | None) -> list[Any]:
    found = {value for own in labels for value in own}
    if given is not None:
        values = label_values(list(given), "classes")
        unknown = sorted(found - set(values), key=str)
        if unknown:
            raise UserError(f"the clients have the label {shown(unknown[0])}, which classes does not list; add it")
        return values
    if -1 in found and 0 in found:
        raise UserError(
            "the clients have the label -1 beside 0 and others, which often stands for a missing label; leave such "
            "samples out, or list -1 among classes=[...] if it is a class"
        )
    values = sorted(found, key=lambda value: (isinstance(value, str), value))
    if len(values) < 2:
        raise UserError(
            f"all clients have the single label {shown(values[0])}; a classifier needs at least two (classes=[...] "
            "names more)"
        )
    return values


def _numbered(values: Sequence[Any], number: Mapping[Any, int], what: str) -> Array:
    unknown = sorted({str(value) for value in values if value not in number})
    if unknown:
        raise UserError(f"{what} has the label {listed(unknown)}, which no client has; correct it or leave it out")
    return np.array([number[value] for value in values], dtype=np.int64)


def _true_labels(given: Any, number: Mapping[Any, int], samples: int) -> Array:
    values = label_values(given, "server")
    if len(values) != samples:
        raise UserError(f"y_server has {len(values)} labels but x_server {samples} samples; give one per sample")
    known = _numbered([value for value in values if value is not None], number, "y_server")
    truth = np.full(samples, -1, dtype=np.int64)
    truth[[value is not None for value in values]] = known
    return truth
