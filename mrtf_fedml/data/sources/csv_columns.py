"""The encoding of a table's columns: numbers stay numbers, a category becomes one feature per value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import UserError
from ..formatting import format_list, quote

#: Strings for a missing value; in a column of numbers a dash and `none` too.
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "#n/a", "?"))
_MISSING_NUMBER = _MISSING | {"none", "-"}
#: A column with more different strings than this, or (from `_MIN_ROWS` rows) than this fraction of the rows, identifies
#: samples and is not a category.
_MAX_CATEGORIES, _MAX_FRACTION, _MIN_ROWS = 50, 0.5, 20
#: A number such as 1,5 in a file with another separator.
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?")
_MAX_FLOAT32 = float(np.finfo(np.float32).max)
#: Booleans as pandas and spreadsheets write them. A column of nothing else is a column of numbers.
_BOOLEANS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True)
class Columns:
    """The feature columns of the clients' table.

    Attributes:
        names: the columns, in the model's order.
        levels: the values of each column that is a category; each value is one feature.
        fills: the replacement for a missing value of each column of numbers; None if missing values are rejected.
            A missing category has none of the values.
    """

    names: list[str]
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    fills: dict[str, float] | None = None

    @property
    def features(self) -> list[str]:
        """The names of all features.

        >>> Columns(["age", "colour"], {"colour": ["blue", "red"]}).features
        ['age', 'colour=blue', 'colour=red']
        """
        per_column = [
            [f"{name}={level}" for level in self.levels[name]] if name in self.levels else [name] for name in self.names
        ]
        return [feature for features in per_column for feature in features]

    def to_json(self) -> dict[str, Any]:
        """The columns as JSON values."""
        return {"names": self.names, "levels": self.levels, "fills": self.fills}


def parse_number(string: str, decimal_comma: bool) -> float:
    """The string as a number, NaN if it is not one that float32 can hold; `decimal_comma` reads 1,5 as 1.5."""
    if decimal_comma and _DECIMAL_COMMA.fullmatch(string):
        string = string.replace(",", ".")
    try:
        # Python would read 1_0 as ten.
        value = math.nan if "_" in string else float(string)
    except ValueError:
        return math.nan
    return value if abs(value) <= _MAX_FLOAT32 else math.nan


def is_missing(string: str, number: bool) -> bool:
    """Whether the string stands for a missing value."""
    return string.strip().lower() in (_MISSING_NUMBER if number else _MISSING)


def identifies_samples(values: int, rows: int) -> bool:
    """Whether a column with this many different strings identifies samples instead of being a category."""
    return values > _MAX_CATEGORIES or (rows >= _MIN_ROWS and values > _MAX_FRACTION * rows)


class ColumnSurvey:
    """Reads every value of the clients' table once, to determine the kind of each column.

    Attributes:
        origin: the table, for messages; it may change between rows.
        names: the feature columns.
    """

    def __init__(self, origin: str, names: Sequence[str], decimal_comma: bool, categories: Iterable[str] = ()) -> None:
        self.origin = origin
        self.names = list(names)
        self._decimal_comma = decimal_comma
        #: Columns that are categories even if their values are numbers.
        self._forced = {index for index, name in enumerate(self.names) if name in set(categories)}
        self._rows = 0
        self._numbers = [0] * len(names)
        self._sums = [0.0] * len(names)
        self._booleans, self._true = [0] * len(names), [0.0] * len(names)
        self._levels: list[set[str]] = [set() for _ in names]
        #: By column, the place and the string of the first value that is neither a number nor missing.
        self._first_string: dict[int, tuple[str, str]] = {}
        #: By column, the place and the string of the first missing value.
        self._first_missing: dict[int, tuple[str, str]] = {}

    def add_row(self, line: int, values: Iterable[str], unit: str = "line") -> None:
        """Add the values of the columns in one row, which is at this line (or another unit) of the table."""
        self._rows += 1
        for column, string in enumerate(values):
            value = math.nan if column in self._forced else parse_number(string, self._decimal_comma)
            if value == value:
                self._numbers[column] += 1
                self._sums[column] += value
            elif is_missing(string, number=False):
                self._first_missing.setdefault(column, (f"{self.origin}, {unit} {line}", string))
            else:
                self._first_string.setdefault(column, (f"{self.origin}, {unit} {line}", string))
                boolean = _BOOLEANS.get(string.strip().lower())
                if boolean is not None:
                    self._booleans[column] += 1
                    self._true[column] += boolean
                if len(self._levels[column]) <= max(_MAX_CATEGORIES, self._rows):
                    self._levels[column].add(string.strip())

    def columns(self, fill: bool) -> Columns:
        """The columns; a `UserError` names the first one that cannot be used."""
        levels, fills = {}, {}
        for column, name in enumerate(self.names):
            if self._numbers[column]:
                fills[name] = self._sums[column] / self._numbers[column]
                string = self._first_string.get(column)
                if string is not None and not (is_missing(string[1], number=True) and fill):
                    raise invalid_value_error(name, *string)
            elif column in self._first_string and column not in self._forced and self._is_boolean(column):
                fills[name] = self._true[column] / self._booleans[column]
            elif column in self._first_string:
                levels[name] = self._check_categories(name, sorted(self._levels[column]))
            elif self._rows:
                raise UserError(
                    f"{self.origin}: the column {quote(name)} has no value in any row; exclude it with ignore_columns"
                )
            if column in self._first_missing and not fill:
                raise invalid_value_error(name, *self._first_missing[column])
        return Columns(self.names, levels, fills if fill else None)

    def _is_boolean(self, column: int) -> bool:
        return {level.lower() for level in self._levels[column]} <= _BOOLEANS.keys()

    def _check_categories(self, name: str, levels: list[str]) -> list[str]:
        if identifies_samples(len(levels), self._rows):
            raise UserError(
                f"{self.origin}: the column {quote(name)} has more than {len(levels) - 1} different strings in "
                f"{self._rows} rows, so it identifies samples and is not a category; exclude it "
                f"(ignore_columns: [{name}]), or use it as the ids (id_column: {name} in a configuration, ids=... in "
                "label())"
            )
        return levels


def invalid_value_error(column: str, place: str, string: str) -> UserError:
    """The error for a value that cannot be used, with its remedies."""
    if is_missing(string, number=True):
        problem = f"{quote(string)} is a missing value" if string.strip() else "the value is missing"
        remedy = "set fill_missing to true (numbers become the clients' mean), or fill it, or remove the row"
    else:
        problem = f"{quote(string)} is not a finite number, but other values of the column are"
        remedy = "correct it, or remove the row"
    return UserError(f"{place}, column {quote(column)}: {problem}; {remedy}, or exclude the column (ignore_columns)")


class RowEncoder:
    """Converts a row of strings to a row of numbers; `unit` is what `line` counts, for messages."""

    def __init__(self, origin: str, columns: Columns, decimal_comma: bool, unit: str = "line") -> None:
        self.origin = origin
        self._unit = unit
        self.columns = columns
        self._decimal_comma = decimal_comma
        self._level_indices: Mapping[str, Mapping[str, int]] = {
            name: {level: index for index, level in enumerate(levels)} for name, levels in columns.levels.items()
        }
        #: Column and value of categories that no client has, with the number of rows.
        self.unknown: dict[tuple[str, str], int] = {}

    def encode(self, line: int, values: Iterable[str]) -> list[float]:
        """The features of one row."""
        encoded: list[float] = []
        for name, string in zip(self.columns.names, values, strict=True):
            indices = self._level_indices.get(name)
            if indices is None:
                value = parse_number(string, self._decimal_comma)
                if value != value:
                    value = _BOOLEANS.get(string.strip().lower(), value)
                if value != value:
                    if self.columns.fills is None or not is_missing(string, number=True):
                        raise self._invalid_value(name, line, string)
                    value = self.columns.fills[name]
                encoded.append(value)
                continue
            one_hot = [0.0] * len(indices)
            level = string.strip()
            if level in indices:
                one_hot[indices[level]] = 1.0
            elif not is_missing(string, number=False):
                self.unknown[name, level] = self.unknown.get((name, level), 0) + 1
            elif self.columns.fills is None:
                raise self._invalid_value(name, line, string)
            encoded += one_hot
        return encoded

    def _invalid_value(self, column: str, line: int, string: str) -> UserError:
        return invalid_value_error(column, f"{self.origin}, {self._unit} {line}", string)

    def unknown_categories_message(self) -> str | None:
        """The warning about categories that no client has; None if there are none."""
        if not self.unknown:
            return None
        names = format_list(f"{name}={level} ({rows} rows)" for (name, level), rows in self.unknown.items())
        return f"{self.origin}: no client has the category {names}; these rows have none of the known categories"
