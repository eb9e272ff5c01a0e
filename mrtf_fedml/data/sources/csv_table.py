"""`dataset: csv`: rows of numeric features with a header, one file for the clients and one for the server."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...errors import UserError
from ...settings import DataSettings
from ..listing import listed
from ..names import printable, shown
from .checks import checked_source
from .csv_file import Table, read_table
from .source import Labels, Source, Users

logger = logging.getLogger("mrtf_fedml")

#: Features beyond this make a network's first steps overshoot.
LARGE = 100.0

#: A class that is a number, of a length that Python still reads as one.
_NUMBER = re.compile(r"-?[0-9]{1,18}")

#: What pandas calls the row numbers that it writes of its own accord.
_ROW_NUMBERS = re.compile(r"(Unnamed: [0-9]+|index|level_0)?")


#: A name that ends in such a word, of a column in which no number comes twice.
_IDS = re.compile(r"(?i)(.*[_ .-])?(id|uuid|key|nr|no)|.*[a-z]I[Dd]")
_ENOUGH = 20


def load_csv(settings: DataSettings) -> Source:
    """The clients' rows from `data_file`, with their classes in `label_column`; the server's from `server_file`.

    The server's file has the same features, in any order; its labels may be missing. Every other column that is not
    among `ignore_columns` is a feature: numbers, or a category, whose texts become a feature each. Classes may be any
    texts: they are numbered in order.
    """
    id_column = "id" if settings.id_column is None else settings.id_column
    apart = {name for name in (settings.label_column, id_column, settings.user_column) if name is not None}
    clients = read_table(settings, "data_file", apart, ("label_column", "user_column", "ignore_columns"))
    server = read_table(settings, "server_file", apart, ("id_column",), clients.columns)
    labels = clients.texts[settings.label_column]
    class_names = _sorted(clients, set(labels))
    _warn(clients, settings)
    return checked_source(
        clients.path.stem,
        f"data file {str(clients.path)!r}",
        x_train=clients.features,
        y_train=_numbers(clients, labels, class_names),
        x_test=server.features,
        y_test=_server_labels(server, settings.label_column, class_names),
        class_names=class_names,
        ids=server.texts.get(id_column),
        users=_users(clients, server, settings.user_column),
        columns=clients.columns,
    )


def _warn(clients: Table, settings: DataSettings) -> None:
    """Of features that are numbers and yet none to learn from."""
    if settings.standardize is False and np.abs(clients.features).max(initial=0) > LARGE:
        logger.warning(
            "%r: features larger than %g train badly; bring each near 0 first, or leave standardize: false out",
            str(clients.path),
            LARGE,
        )
    for position, name in enumerate(clients.columns.features):
        values = clients.features[:, position].tolist()
        # Of rows that were shuffled or chosen, pandas writes the numbers that they had before.
        is_index = len(set(values)) == len(values) and all(value.is_integer() for value in values)
        if is_index and _IDS.fullmatch(name) and len(values) >= _ENOUGH:
            logger.warning(
                "%r: the column %r looks like ids and is taken as a feature; make it the ids with data_args.id_column: "
                "%r, or leave it out with data_args.ignore_columns: [%s]",
                str(clients.path),
                name,
                name,
                name,
            )
        if is_index and _ROW_NUMBERS.fullmatch(name):
            logger.warning(
                "%r: the column %r numbers the rows and is taken as a feature; leave it out of both files (pandas: "
                "to_csv(..., index=False)), or make it the ids with data_args.id_column: %r",
                str(clients.path),
                name,
                name,
            )


def _sorted(clients: Table, names: set[str]) -> list[str]:
    """The classes in the order of their numbers, or of their letters where not all are numbers."""
    if not all(_NUMBER.fullmatch(name) for name in names):
        return sorted(names)
    times = Counter(int(name) for name in names)
    alike = sorted((name for name in names if times[int(name)] > 1), key=lambda name: (int(name), name))
    if alike:
        logger.warning(
            "%r: the classes %s are the same numbers, written differently, and taken as different classes; write "
            "each class in one way",
            str(clients.path),
            listed(alike),
        )
    return sorted(names, key=lambda name: (int(name), name))


def _numbers(table: Table, labels: Sequence[str], class_names: list[str]) -> Labels:
    number = {name: position for position, name in enumerate(class_names)}
    for row, label in enumerate(labels, start=1):
        if label == "" or label not in number:
            what = "has no label" if label == "" else f"has the label {shown(label)}, which no client has"
            raise UserError(f"data file {str(table.path)!r}: row {row} {what}; correct it or take the row out")
    return np.array([number[label] for label in labels], dtype=np.int64)


def _server_labels(server: Table, column: str, class_names: list[str]) -> Labels | None:
    labels = server.texts.get(column)
    # An empty column is how a spreadsheet says that nothing is known.
    return None if labels is None or not any(labels) else _numbers(server, labels, class_names)


def _users(clients: Table, server: Table, column: str | None) -> Users | None:
    if column is None:
        return None
    owners = clients.texts[column]
    if "" in owners:
        raise UserError(
            f"data file {str(clients.path)!r}: row {owners.index('') + 1} has no {shown(column)}; say whose it is or "
            "take the row out"
        )
    names = sorted(set(owners))
    number = {name: position for position, name in enumerate(names)}
    # The server's rows are the server's own, whoever they are about: -1 is nobody.
    nobody = np.full(len(server.features), -1, dtype=np.int64)
    return Users(
        [printable(name) for name in names], np.array([number[name] for name in owners], dtype=np.int64), nobody
    )
