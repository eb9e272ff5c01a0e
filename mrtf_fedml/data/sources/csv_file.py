"""One csv file as a table: the features as numbers, the other columns as texts."""

from __future__ import annotations

import csv
import logging
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError, nearest
from ...settings import DataSettings
from ..listing import listed
from ..names import shown
from .csv_columns import Columns, Encoder, Survey
from .memory import Memory, memory_of
from .reading import first_line
from .source import Array

_log = logging.getLogger("mrtf_fedml")

#: What may part columns, the likeliest first.
_SEPARATORS = (",", ";", "\t", "|")
#: A name is looked for among so many columns, since comparing texts takes its time.
_LOOKED_AT = 200


@dataclass(frozen=True)
class Table:
    """A file's columns: what became of the features, and the texts of the columns that are none."""

    path: Path
    columns: Columns
    features: Array
    texts: dict[str, list[str]]


def read_table(
    settings: DataSettings, key: str, apart: set[str], needed: Sequence[str], columns: Columns | None = None
) -> Table:
    """One file; `columns` are what it must have, where they are known already; else they are found in it.

    `apart` are the columns that are no features, and `needed` the settings that name those it must have.
    """
    path = _path(settings, key)
    apart = apart | set(settings.ignore_columns)
    origin = f"data file {str(path)!r}"
    try:
        with _rows(path, settings) as (header, rows, comma):
            _check_named(path, header, settings, needed)
            names = _names(path, header, apart, None if columns is None else columns.names)
            if columns is None:
                survey = Survey(origin, names, comma)
                position = {name: place for place, name in enumerate(header)}
                places = [position[name] for name in names]
                for row in _whole(path, header, rows):
                    survey.row(rows.line_num, [row[place] for place in places])
                columns = survey.columns(settings.fill_missing)
        with _rows(path, settings) as (header, rows, comma):
            encoder = Encoder(origin, columns, comma)
            table = _table(path, header, rows, apart - set(settings.ignore_columns), encoder, memory_of(settings))
            warning = encoder.unknown_categories()
            if warning is not None:
                _log.warning("%s", warning)
            return table
    except OSError as error:
        raise UserError(
            f"data file {str(path)!r} cannot be opened ({error.strerror}); correct data_args.{key}"
        ) from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(
            f"data file {str(path)!r} is no csv file in UTF-8 ({first_line(error)}); write it again"
        ) from error


@contextmanager
def _rows(path: Path, settings: DataSettings) -> Iterator[tuple[list[str], Any, bool]]:
    """The header, the rows after it, and whether a comma may be a decimal one: where it parts no columns."""
    # With the mark that spreadsheets put before the first column's name taken off.
    with path.open(newline="", encoding="utf-8-sig") as file:
        separator = settings.separator or _separator(file.readline())
        file.seek(0)
        rows = csv.reader(file, delimiter=separator)
        yield _header(path, rows), rows, separator != ","


def _separator(header: str) -> str:
    """What parts the columns: the commonest of the usual signs outside of quotes; a comma where there is none.

    >>> _separator('age;weight;"a, b"')
    ';'
    """
    bare = re.sub(r'"[^"]*"', "", header)
    return max(_SEPARATORS, key=bare.count)


def _check_named(path: Path, header: list[str], settings: DataSettings, needed: Sequence[str]) -> None:
    known = [name for name in header[:_LOOKED_AT] if len(name) < _LOOKED_AT]
    for setting in needed:
        given = getattr(settings, setting)
        for name in [given] if isinstance(given, str) else given or []:
            if name not in header:
                raise UserError(
                    f"data file {str(path)!r} has no column {shown(name)}; correct data_args.{setting} "
                    f"({' '.join(nearest(name, known).split())}){_hint_of_separator(header)}"
                )


def _hint_of_separator(header: list[str]) -> str:
    return "; if its columns are parted by another sign, name it with data_args.separator" if len(header) == 1 else ""


def _path(settings: DataSettings, key: str) -> Path:
    named = getattr(settings, key)
    if named is None:
        whose = "clients'" if key == "data_file" else "server's"
        raise UserError(f"data_args.{key} is not given; name the {whose} .csv file there")
    path = Path(named).expanduser()
    if not path.is_file():
        what = "there is none" if not path.exists() else "it is no file"
        raise UserError(f"data file {str(path)!r} cannot be opened ({what}); correct data_args.{key}")
    memory_of(settings).check(path.stat().st_size, f"data file {str(path)!r}")
    return path


def _header(path: Path, rows: Any) -> list[str]:
    header = [name.strip() for name in next(rows, [])]
    twice = sorted(name for name, times in Counter(header).items() if times > 1)
    if twice or not header:
        what = f"has the column {_columns(twice)} twice" if twice else "has no header"
        raise UserError(f"data file {str(path)!r} {what}; name each column once, in the first line")
    return header


def _names(path: Path, header: list[str], apart: set[str], wanted: list[str] | None) -> list[str]:
    """The features' columns, in the order that is wanted."""
    present = [name for name in header if name not in apart]
    names = present if wanted is None else wanted
    known, there = set(names), set(header)
    lacking, unknown = [name for name in names if name not in there], [name for name in present if name not in known]
    if lacking or unknown or not names:
        what = f"has the column {_columns(unknown)} that the clients lack" if unknown else "has no feature"
        what = f"lacks the feature {_columns(lacking)}" if lacking else what
        raise UserError(
            f"data file {str(path)!r} {what}; give both files the same features, or leave some out with "
            f"data_args.ignore_columns{_hint_of_separator(header)}"
        )
    return names


def _whole(path: Path, header: list[str], rows: Any) -> Iterator[list[str]]:
    """The rows that are not empty, each with a value for every column."""
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise UserError(
                f"data file {str(path)!r}, line {rows.line_num}: {len(row)} values where the header has {len(header)}; "
                "mend the line"
            )
        yield row


def _table(path: Path, header: list[str], rows: Any, apart: set[str], encoder: Encoder, memory: Memory) -> Table:
    place = {name: position for position, name in enumerate(header)}
    columns = [place[name] for name in encoder.columns.names]
    texts: dict[str, list[str]] = {name: [] for name in header if name in apart}
    numbers, width, count = array("f"), len(encoder.columns.features), 0
    for row in _whole(path, header, rows):
        numbers.extend(encoder.row(rows.line_num, [row[column] for column in columns]))
        for name, column in texts.items():
            column.append(row[place[name]].strip())
        count += 1
    if count == 0:
        raise UserError(f"data file {str(path)!r} has a header and no row; give at least one sample")
    memory.check_array((count, width), numbers.itemsize, f"data file {str(path)!r}")
    return Table(path, encoder.columns, np.array(numbers, dtype=np.float32).reshape(count, width), texts)


def _columns(names: list[str]) -> str:
    return listed(name or "''" for name in names)
