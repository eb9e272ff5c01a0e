"""`dataset: csv`: rows of numeric features with a header, one file for the clients and one for the server."""

from __future__ import annotations

import csv
import logging
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError, nearest
from ...settings import DataSettings
from ..listing import listed
from .checks import checked_source
from .source import (
    Array,
    Labels,
    Source,
    Users,
)

logger = logging.getLogger("mrtf_fedml")

#: Features beyond this make a network's first steps overshoot.
LARGE = 100.0


@dataclass(frozen=True)
class _Table:
    """A file's columns: the features by name, and the texts of the columns that are none."""

    path: Path
    names: list[str]
    features: Array
    texts: dict[str, list[str]]


def load_csv(settings: DataSettings) -> Source:
    """The clients' rows from `data_file`, with their classes in `label_column`; the server's from `server_file`.

    The server's file has the same features, in any order; its labels may be missing. Every other column is a
    feature and must be a number in every row. Classes may be any texts: they are numbered in order.
    """
    id_column = settings.id_column or "id"
    apart = {name for name in (settings.label_column, id_column, settings.user_column) if name is not None}
    clients = _read(settings, "data_file", apart, ("label_column", "user_column"))
    server = _read(settings, "server_file", apart, ("id_column",), clients.names)
    labels = clients.texts[settings.label_column]
    class_names = _sorted(set(labels))
    if np.abs(clients.features).max(initial=0) > LARGE:
        logger.warning("%s: features larger than %g train badly; bring each near 0 first", clients.path, LARGE)
    return checked_source(
        clients.path.stem,
        f"data file {str(clients.path)!r}",
        x_train=clients.features,
        y_train=_numbers(clients.path, labels, class_names),
        x_test=server.features,
        y_test=_server_labels(server, settings.label_column, class_names),
        class_names=class_names,
        ids=server.texts.get(id_column),
        users=_users(clients, server, settings.user_column),
    )


def _read(
    settings: DataSettings, key: str, apart: set[str], needed: Sequence[str], features: list[str] | None = None
) -> _Table:
    """One file; `features` are the columns that it must have, in that order, where they are known already.

    `apart` are the columns that are no features, and `needed` the settings that name those it must have.
    """
    named = getattr(settings, key)
    if named is None:
        whose = "clients'" if key == "data_file" else "server's"
        raise UserError(f"data_args.{key} is not given; name the {whose} .csv file there")
    path = Path(named).expanduser()
    try:
        # With the mark that spreadsheets put before the first column's name taken off.
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            header = _header(path, rows)
            for setting in needed:
                name = getattr(settings, setting)
                if name is not None and name not in header:
                    raise UserError(
                        f"data file {str(path)!r} has no column {name!r}; correct data_args.{setting} "
                        f"({nearest(name, header)})"
                    )
            return _table(path, header, rows, apart, features)
    except OSError as error:
        raise UserError(
            f"data file {str(path)!r} cannot be opened ({error.strerror}); correct data_args.{key}"
        ) from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"data file {str(path)!r} is no csv file in UTF-8 ({error}); write it again") from error


def _header(path: Path, rows: Any) -> list[str]:
    header = [name.strip() for name in next(rows, [])]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice or not header:
        what = f"has the column {listed(twice)} twice" if twice else "has no header"
        raise UserError(f"data file {str(path)!r} {what}; name each column once, in the first line")
    return header


def _table(path: Path, header: list[str], rows: Any, apart: set[str], wanted: list[str] | None) -> _Table:
    present = [name for name in header if name not in apart]
    names = present if wanted is None else wanted
    lacking, unknown = [name for name in names if name not in header], [name for name in present if name not in names]
    if lacking or unknown or not names:
        what = f"has the column {listed(unknown)} that the clients lack" if unknown else "has no feature"
        what = f"lacks the feature {listed(lacking)}" if lacking else what
        raise UserError(f"data file {str(path)!r} {what}; give both files the same features")
    columns = [header.index(name) for name in names]
    texts: dict[str, list[str]] = {name: [] for name in header if name in apart}
    places = {name: header.index(name) for name in texts}
    numbers = array("f")
    count = 0
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise UserError(
                f"data file {str(path)!r}, line {rows.line_num}: {len(row)} values where the header has {len(header)}; "
                "mend the line"
            )
        numbers.extend(_number(path, rows.line_num, header[column], row[column]) for column in columns)
        for name, place in places.items():
            texts[name].append(row[place].strip())
        count += 1
    if count == 0:
        raise UserError(f"data file {str(path)!r} has a header and no row; give at least one sample")
    return _Table(path, names, np.array(numbers, dtype=np.float32).reshape(count, len(names)), texts)


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= np.finfo(np.float32).max:
        raise UserError(
            f"data file {str(path)!r}, line {line}, column {column!r}: {text!r} is no finite number; fill it, or take "
            "the column or the row out"
        )
    return value


def _sorted(names: set[str]) -> list[str]:
    """The classes in the order of their numbers, or of their letters where not all are numbers."""
    return sorted(names, key=int) if all(name.lstrip("-").isdecimal() for name in names) else sorted(names)


def _numbers(path: Path, labels: Sequence[str], class_names: list[str]) -> Labels:
    number = {name: position for position, name in enumerate(class_names)}
    for row, label in enumerate(labels, start=1):
        if label == "" or label not in number:
            what = "has no label" if label == "" else f"has the label {label!r}, which no client has"
            raise UserError(f"data file {str(path)!r}: row {row} {what}; correct it or take the row out")
    return np.array([number[label] for label in labels], dtype=np.int64)


def _server_labels(server: _Table, column: str, class_names: list[str]) -> Labels | None:
    labels = server.texts.get(column)
    # An empty column is how a spreadsheet says that nothing is known.
    return None if labels is None or not any(labels) else _numbers(server.path, labels, class_names)


def _users(clients: _Table, server: _Table, column: str | None) -> Users | None:
    if column is None:
        return None
    names = sorted(set(clients.texts[column]))
    number = {name: position for position, name in enumerate(names)}
    # The server's rows are the server's own, whoever they are about: -1 is nobody.
    nobody = np.full(len(server.features), -1, dtype=np.int64)
    return Users(names, np.array([number[name] for name in clients.texts[column]], dtype=np.int64), nobody)
