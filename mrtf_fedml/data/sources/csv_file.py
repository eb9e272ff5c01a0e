"""One csv file as a table: the features as numbers, the other columns as texts."""

from __future__ import annotations

import csv
import math
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError, nearest
from ...settings import DataSettings
from ..listing import listed
from ..names import shown
from .memory import Memory, memory_of
from .reading import first_line
from .source import Array

#: A name is looked for among so many columns, since comparing texts takes its time.
_LOOKED_AT = 200


@dataclass(frozen=True)
class Table:
    """A file's columns: the features by name, and the texts of the columns that are none."""

    path: Path
    names: list[str]
    features: Array
    texts: dict[str, list[str]]


def read_table(
    settings: DataSettings, key: str, apart: set[str], needed: Sequence[str], features: list[str] | None = None
) -> Table:
    """One file; `features` are the columns that it must have, in that order, where they are known already.

    `apart` are the columns that are no features, and `needed` the settings that name those it must have.
    """
    path = _path(settings, key)
    try:
        # With the mark that spreadsheets put before the first column's name taken off.
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            header = _header(path, rows)
            for setting in needed:
                name = getattr(settings, setting)
                if name is not None and name not in header:
                    hint = nearest(name, [known for known in header[:_LOOKED_AT] if len(known) < _LOOKED_AT])
                    raise UserError(
                        f"data file {str(path)!r} has no column {shown(name)}; correct data_args.{setting} "
                        f"({' '.join(hint.split())})"
                    )
            return _table(path, header, rows, apart, features, memory_of(settings))
    except OSError as error:
        raise UserError(
            f"data file {str(path)!r} cannot be opened ({error.strerror}); correct data_args.{key}"
        ) from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(
            f"data file {str(path)!r} is no csv file in UTF-8 ({first_line(error)}); write it again"
        ) from error


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


def _table(
    path: Path, header: list[str], rows: Any, apart: set[str], wanted: list[str] | None, memory: Memory
) -> Table:
    place = {name: position for position, name in enumerate(header)}
    present = [name for name in header if name not in apart]
    names = present if wanted is None else wanted
    known = set(names)
    lacking, unknown = [name for name in names if name not in place], [name for name in present if name not in known]
    if lacking or unknown or not names:
        what = f"has the column {_columns(unknown)} that the clients lack" if unknown else "has no feature"
        what = f"lacks the feature {_columns(lacking)}" if lacking else what
        raise UserError(f"data file {str(path)!r} {what}; give both files the same features")
    columns = [place[name] for name in names]
    texts: dict[str, list[str]] = {name: [] for name in header if name in apart}
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
        for name, column in texts.items():
            column.append(row[place[name]].strip())
        count += 1
    if count == 0:
        raise UserError(f"data file {str(path)!r} has a header and no row; give at least one sample")
    memory.check_array((count, len(names)), numbers.itemsize, f"data file {str(path)!r}")
    return Table(path, names, np.array(numbers, dtype=np.float32).reshape(count, len(names)), texts)


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        # Python would read 1_0 as ten.
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= np.finfo(np.float32).max:
        raise UserError(
            f"data file {str(path)!r}, line {line}, column {shown(column)}: {shown(text)} is no finite number; fill "
            "it, or take the column or the row out"
        )
    return value


def _columns(names: list[str]) -> str:
    return listed(name or "''" for name in names)
