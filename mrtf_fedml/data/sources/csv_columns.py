"""How a table's columns become numbers: numbers stay, categories become one feature for each of their texts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import UserError
from ..listing import listed
from ..names import shown

#: How tables say that a value is not known; in a column of numbers a dash and `none` too.
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "#n/a", "?"))
_MISSING_NUMBER = _MISSING | {"none", "-"}
#: More different texts than this, or than half of the rows, tell samples apart and not classes.
_MOST_LEVELS, _SHARE, _ENOUGH_ROWS = 50, 0.5, 20
#: 1,5 in a file whose columns are parted by something else.
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?")
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Columns:
    """The features of a table, as the clients' file has them.

    Attributes:
        names: the columns, in the model's order.
        levels: of each column that is a category its texts, each of which is a feature of its own.
        fills: of each column of numbers what stands in for a missing one; None where missing values are refused.
            A category that is missing is none of its texts.
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
        named = [
            [f"{name}={level}" for level in self.levels[name]] if name in self.levels else [name] for name in self.names
        ]
        return [feature for features in named for feature in features]

    def facts(self) -> dict[str, Any]:
        """The same in what JSON can say."""
        return {"names": self.names, "levels": self.levels, "fills": self.fills}


def number_of(text: str, comma: bool) -> float:
    """The number that the text is, NaN where it is none that float32 can hold; `comma` reads 1,5 as one and a half."""
    if comma and _DECIMAL_COMMA.fullmatch(text):
        text = text.replace(",", ".")
    try:
        # Python would read 1_0 as ten.
        value = math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan
    return value if abs(value) <= _LARGEST else math.nan


def is_missing(text: str, number: bool) -> bool:
    """Whether the text says that nothing is known."""
    return text.strip().lower() in (_MISSING_NUMBER if number else _MISSING)


class Survey:
    """Looks at every value of the clients' file once, to find what kind each column is."""

    def __init__(self, origin: str, names: Sequence[str], comma: bool) -> None:
        self.origin = origin
        self.names = list(names)
        self._comma = comma
        self._rows = 0
        self._numbers = [0] * len(names)
        self._sums = [0.0] * len(names)
        self._levels: list[set[str]] = [set() for _ in names]
        #: The line and the text of the first value of each column that is neither a number nor missing; of the missing.
        self._first: dict[int, tuple[int, str]] = {}
        self._gap: dict[int, tuple[int, str]] = {}

    def row(self, line: int, values: Iterable[str]) -> None:
        """The values of the columns in one row."""
        self._rows += 1
        for place, text in enumerate(values):
            value = number_of(text, self._comma)
            if value == value:
                self._numbers[place] += 1
                self._sums[place] += value
            elif is_missing(text, number=False):
                self._gap.setdefault(place, (line, text))
            else:
                self._first.setdefault(place, (line, text))
                if len(self._levels[place]) <= max(_MOST_LEVELS, self._rows):
                    self._levels[place].add(text.strip())

    def columns(self, fill: bool) -> Columns:
        """What the columns are; a `UserError` names the first that is nothing to learn from."""
        levels, fills = {}, {}
        for place, name in enumerate(self.names):
            if self._numbers[place]:
                fills[name] = self._sums[place] / self._numbers[place]
                wrong = self._first.get(place)
                if wrong is not None and not (is_missing(wrong[1], number=True) and fill):
                    raise not_a_number(self.origin, name, *wrong)
            elif place in self._first:
                levels[name] = self._categories(name, sorted(self._levels[place]))
            elif self._rows:
                raise UserError(
                    f"{self.origin}: the column {shown(name)} has no value in any row; leave it out with "
                    f"data_args.ignore_columns"
                )
            if place in self._gap and not fill:
                raise not_a_number(self.origin, name, *self._gap[place])
        return Columns(self.names, levels, fills if fill else None)

    def _categories(self, name: str, texts: list[str]) -> list[str]:
        if len(texts) > _MOST_LEVELS or (self._rows >= _ENOUGH_ROWS and len(texts) > _SHARE * self._rows):
            raise UserError(
                f"{self.origin}: the column {shown(name)} has more than {len(texts) - 1} different texts in "
                f"{self._rows} rows, which tell samples apart and not classes; leave it out with "
                f"data_args.ignore_columns: [{name}], or make it the ids with data_args.id_column: {name}"
            )
        return texts


def not_a_number(origin: str, column: str, line: int, text: str) -> UserError:
    """The sentence on a value that cannot be used, with the remedies that there are."""
    missing = is_missing(text, number=True)
    remedy = (
        "fill it, take the row out, set data_args.fill_missing: true (the clients' mean stands in for it), or leave "
        "the column out with data_args.ignore_columns"
        if missing
        else "fill it, or take the column (data_args.ignore_columns) or the row out"
    )
    return UserError(f"{origin}, line {line}, column {shown(column)}: {shown(text)} is no finite number; {remedy}")


class Encoder:
    """Makes a row of texts a row of numbers."""

    def __init__(self, origin: str, columns: Columns, comma: bool) -> None:
        self.origin = origin
        self.columns = columns
        self._comma = comma
        self._places: Mapping[str, Mapping[str, int]] = {
            name: {level: place for place, level in enumerate(levels)} for name, levels in columns.levels.items()
        }
        #: Texts of a category that no client has, with the rows in which each was met.
        self.unknown: dict[tuple[str, str], int] = {}

    def row(self, line: int, values: Iterable[str]) -> list[float]:
        """The features of one row."""
        encoded: list[float] = []
        for name, text in zip(self.columns.names, values, strict=True):
            places = self._places.get(name)
            if places is None:
                value = number_of(text, self._comma)
                if value != value:
                    if self.columns.fills is None or not is_missing(text, number=True):
                        raise not_a_number(self.origin, name, line, text)
                    value = self.columns.fills[name]
                encoded.append(value)
                continue
            hot = [0.0] * len(places)
            level = text.strip()
            if level in places:
                hot[places[level]] = 1.0
            elif not is_missing(text, number=False):
                self.unknown[name, level] = self.unknown.get((name, level), 0) + 1
            elif self.columns.fills is None:
                raise not_a_number(self.origin, name, line, text)
            encoded += hot
        return encoded

    def unknown_categories(self) -> str | None:
        """What to say of categories that no client has; None where there are none."""
        if not self.unknown:
            return None
        named = listed(f"{name}={level} ({rows} rows)" for (name, level), rows in self.unknown.items())
        return f"{self.origin}: no client has the category {named}; there it counts as none of the known ones"
