"""`dataset: csv`: tables with a header, one file for the clients and one for the server."""

from __future__ import annotations

import csv
import logging
import os
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from ...config import DataSettings
from ...errors import UserError, suggest_name
from ..formatting import escape, format_list, quote
from .csv_columns import Columns, ColumnSurvey, RowEncoder
from .files import MemoryLimit, file_problem, first_line, memory_limit
from .source import Array, Labels, Source, Users, make_source

logger = logging.getLogger("mrtf_fedml")

#: Separators of columns, the most likely first.
_SEPARATORS = (",", ";", "\t", "|")
#: The nearest name is searched among this many columns of at most this length, since comparing strings is slow.
_MAX_COMPARED = 200

#: Most columns, and most characters of a row with its line ends. A wider table takes minutes and gigabytes.
_MAX_COLUMNS, _MAX_ROW_LENGTH = 100_000, 10_000_000

#: Features beyond this value make the first steps of a network overshoot.
LARGE = 100.0

#: A class that is an integer, of a length that Python converts.
_INTEGER = re.compile(r"-?[0-9]{1,18}")
#: The names that pandas gives to a column of row numbers.
ROW_NUMBERS = re.compile(r"(Unnamed: [0-9]+|index|level_0)?")
#: The name of a column of identifiers.
ID_COLUMN = re.compile(r"(?i)(.*[_ .-])?(id|uuid|key|nr|no)|.*[a-z]I[Dd]")
#: The number of rows from which distinct integers suggest identifiers.
_MIN_ID_ROWS = 20


@dataclass(frozen=True)
class Table:
    """A file: the features as numbers, and the other columns as strings."""

    path: Path
    columns: Columns
    features: Array
    strings: dict[str, list[str]]

    def samples(self, column: str | None) -> Array:
        """The features [N, D]; or, with a `text_column`, its strings [N], none of which may be empty."""
        if column is None:
            return self.features
        for row, text in enumerate(self.strings[column], start=1):
            if not text:
                raise UserError(
                    f"data file {str(self.path)!r}: row {row} has no {quote(column)} (data_args.text_column); fill it "
                    "or remove the row"
                )
        return np.array(self.strings[column], dtype=object)


def load_csv(settings: DataSettings) -> Source:
    """The clients' rows from `data_file`, with their classes in `label_column`; the server's from `server_file`.

    The server's file has the same features, in any order; its labels may be missing. Every other column that is not
    in `ignore_columns` is a feature: numbers, or a category with one feature per value. Classes may be any strings:
    they are numbered in order.
    """
    id_column, others = non_feature_columns(settings)
    _check_ignored_columns(settings)
    clients = read_table(settings, "data_file", others, ("label_column", "user_column"))
    server = read_table(settings, "server_file", others, ("id_column",), clients.columns)
    labels = clients.strings[settings.label_column]
    class_names = _sort_classes(clients, set(labels))
    _warn_about_features(clients, settings)
    return make_source(
        clients.path.stem,
        f"data file {str(clients.path)!r}",
        x_train=clients.samples(settings.text_column),
        y_train=_to_class_indices(clients, labels, class_names),
        x_test=server.samples(settings.text_column),
        y_test=_server_labels(server, settings.label_column, class_names),
        class_names=class_names,
        ids=server.strings.get(id_column),
        users=_make_users(clients, server, settings.user_column),
        columns=clients.columns if settings.text_column is None else None,
    )


def non_feature_columns(settings: DataSettings) -> tuple[str, set[str]]:
    """The name of the id column, and the names of all columns that are not features."""
    id_column = "id" if settings.id_column is None else settings.id_column
    others = (settings.label_column, id_column, settings.user_column, settings.text_column)
    return id_column, {name for name in others if name is not None}


def read_table(
    settings: DataSettings,
    key: str,
    others: set[str],
    required: Sequence[str],
    columns: Columns | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
) -> Table:
    """The file `data_args.<key>`, with the feature columns `columns` if given, else with those found in it.

    Args:
        settings: `data_args`.
        key: the setting that names the file.
        others: the columns that are not features.
        required: the settings whose columns must exist.
        columns: of the clients' file; None to determine them from this file.
        categories: without `columns`: the values of each column of categories, as agreed with parties that cannot be
            asked; the features are then sorted by name. None to take them from this file.
    """
    path = _table_path(settings, key)
    others = others | set(settings.ignore_columns)
    origin = f"data file {str(path)!r}"
    with _report_read_errors(path, key):
        with _open_rows(path, settings) as (header, rows, decimal_comma):
            _check_named_columns(path, header, settings, [*required, "text_column"])
            if settings.text_column is not None:
                # The text is the sample.
                columns = Columns([])
            else:
                names = _feature_names(path, header, others, None if columns is None else columns.names)
            if columns is None:
                names = names if categories is None else sorted(names)
                survey = ColumnSurvey(origin, names, decimal_comma, categories or ())
                position = {name: index for index, name in enumerate(header)}
                positions = [position[name] for name in names]
                for row in _complete_rows(path, header, rows):
                    survey.add_row(rows.line_num, [row[index] for index in positions])
                columns = survey.columns(settings.fill_missing)
                if categories is not None:
                    columns = _with_agreed_categories(origin, columns, categories)
        with _open_rows(path, settings) as (header, rows, decimal_comma):
            encoder = RowEncoder(origin, columns, decimal_comma)
            string_columns = others - set(settings.ignore_columns)
            table = _encode_table(path, header, rows, string_columns, encoder, memory_limit(settings))
            warning = encoder.unknown_categories_message()
            if warning is not None:
                logger.warning("%s", warning)
            return table


def read_rows(path: Path, settings: DataSettings, key: str) -> Iterator[tuple[int, bool, list[tuple[str, str]]]]:
    """Each row of a file: its line, whether numbers may have decimal commas, and its columns' names and strings."""
    with _report_read_errors(path, key), _open_rows(path, settings) as (header, rows, decimal_comma):
        for row in _complete_rows(path, header, rows):
            yield rows.line_num, decimal_comma, list(zip(header, row, strict=True))


@contextmanager
def _report_read_errors(path: Path, key: str) -> Iterator[None]:
    """Convert errors of the block, which reads the file `data_args.<key>`, to a `UserError`."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"data file {str(path)!r} cannot be opened ({error.strerror}); correct data_args.{key}"
        ) from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(
            f"data file {str(path)!r} is not a csv file in UTF-8 ({first_line(error)}); write it again"
        ) from error


def _check_ignored_columns(settings: DataSettings) -> None:
    """Each of `ignore_columns` must be in at least one of the two files, or it is misspelt."""
    if not settings.ignore_columns:
        return
    known: list[str] = []
    for key in ("data_file", "server_file"):
        path = _table_path(settings, key)
        with _report_read_errors(path, key), _open_rows(path, settings) as (header, _, _):
            known += [name for name in header if name not in known]
    _check_named_columns(_table_path(settings, "data_file"), known, settings, ("ignore_columns",))


def _with_agreed_categories(origin: str, columns: Columns, agreed: Mapping[str, Sequence[str]]) -> Columns:
    """The columns with the agreed values of categories instead of the values in this file."""
    for name, levels in columns.levels.items():
        if name not in agreed:
            raise UserError(
                f"{origin}: the column {quote(name)} holds strings; list its values in data_args.categories, the same "
                f"for every party ({name}: [{format_list(levels)}] here), or exclude it with ignore_columns"
            )
    unknown = [name for name in agreed if name not in columns.names]
    if unknown:
        raise UserError(
            f"{origin} has no column {quote(unknown[0])}, which data_args.categories names; "
            + suggest_name(unknown[0], columns.names[:_MAX_COMPARED])
        )
    return Columns(columns.names, {name: [str(level) for level in agreed[name]] for name in agreed}, columns.fills)


@contextmanager
def _open_rows(path: Path, settings: DataSettings) -> Iterator[tuple[list[str], _Rows, bool]]:
    """The header, the rows after it, and whether numbers may have decimal commas (the separator is not a comma)."""
    # utf-8-sig: spreadsheets write a byte order mark before the first column's name.
    with path.open(newline="", encoding="utf-8-sig") as file:
        separator = settings.separator or _guess_separator(file.readline(_MAX_ROW_LENGTH))
        file.seek(0)
        rows = _Rows(path, file, separator)
        yield _read_header(path, rows), rows, separator != ","


class _Rows:
    """The rows of a file, each of at most `_MAX_ROW_LENGTH` characters; a quoted cell may have several lines."""

    def __init__(self, path: Path, file: IO[str], separator: str) -> None:
        self._path = path
        self._file = file
        self._length = 0
        self._reader = csv.reader(self._lines(), delimiter=separator)

    def __iter__(self) -> _Rows:
        return self

    def __next__(self) -> list[str]:
        self._length = 0
        return next(self._reader)

    @property
    def line_num(self) -> int:
        """The number of lines that were read."""
        return self._reader.line_num

    def _lines(self) -> Iterator[str]:
        while line := self._file.readline(_MAX_ROW_LENGTH + 1):
            self._length += len(line)
            if self._length > _MAX_ROW_LENGTH:
                raise UserError(
                    f"data file {str(self._path)!r}: the row at line {self.line_num + 1} has more than "
                    f"{_MAX_ROW_LENGTH} characters; write one sample per row, or use dataset: npz"
                )
            yield line


def _guess_separator(header: str) -> str:
    """The most frequent separator outside of quotes; a comma if there is none.

    >>> _guess_separator('age;weight;"a, b"')
    ';'
    """
    unquoted = re.sub(r'"[^"]*"', "", header)
    return max(_SEPARATORS, key=unquoted.count)


def _check_named_columns(path: Path, header: list[str], settings: DataSettings, required: Sequence[str]) -> None:
    known = [name for name in header[:_MAX_COMPARED] if len(name) < _MAX_COMPARED]
    for setting in required:
        value = getattr(settings, setting)
        for name in [value] if isinstance(value, str) else value or []:
            if name not in header:
                raise UserError(
                    f"data file {str(path)!r} has no column {quote(name)}; correct data_args.{setting} "
                    f"({' '.join(suggest_name(name, known).split())}){_separator_hint(header)}"
                )


def _separator_hint(header: list[str]) -> str:
    return "; if its columns have another separator, set data_args.separator" if len(header) == 1 else ""


def _table_path(settings: DataSettings, key: str) -> Path:
    name = getattr(settings, key)
    if name is None:
        owner = "clients'" if key == "data_file" else "server's"
        raise UserError(f"data_args.{key} is not set; set it to the {owner} .csv file")
    path = Path(os.path.expanduser(name))
    if not path.is_file():
        raise UserError(f"data file {str(path)!r} {file_problem(path)}; correct data_args.{key}")
    memory_limit(settings).check(path.stat().st_size, f"data file {str(path)!r}")
    return path


def _read_header(path: Path, rows: Iterator[list[str]]) -> list[str]:
    header = [name.strip() for name in next(rows, [])]
    if len(header) > _MAX_COLUMNS:
        raise UserError(
            f"data file {str(path)!r} has {len(header)} columns, more than {_MAX_COLUMNS}; use dataset: npz"
        )
    duplicates = sorted(name for name, count in Counter(header).items() if count > 1)
    if duplicates or not header:
        problem = f"has the column {_format_columns(duplicates)} twice" if duplicates else "has no header"
        raise UserError(f"data file {str(path)!r} {problem}; name each column once, in the first line")
    return header


def _feature_names(path: Path, header: list[str], others: set[str], required: list[str] | None) -> list[str]:
    """The feature columns, in the order `required` if given."""
    present = [name for name in header if name not in others]
    names = present if required is None else required
    known, in_header = set(names), set(header)
    missing = [name for name in names if name not in in_header]
    unknown = [name for name in present if name not in known]
    if missing or unknown or not names:
        problem = (
            f"has the column {_format_columns(unknown)} that the clients lack" if unknown else "has no feature column"
        )
        problem = f"lacks the feature {_format_columns(missing)}" if missing else problem
        raise UserError(
            f"data file {str(path)!r} {problem}; give both files the same features, or exclude some with "
            f"ignore_columns{_separator_hint(header)}"
        )
    return names


def _complete_rows(path: Path, header: list[str], rows: _Rows) -> Iterator[list[str]]:
    """The rows that are not empty, each with one value per column."""
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise UserError(
                f"data file {str(path)!r}, line {rows.line_num}: {len(row)} values where the header has {len(header)}; "
                "correct the line"
            )
        yield row


def _encode_table(
    path: Path, header: list[str], rows: _Rows, string_columns: set[str], encoder: RowEncoder, limit: MemoryLimit
) -> Table:
    position = {name: index for index, name in enumerate(header)}
    positions = [position[name] for name in encoder.columns.names]
    strings: dict[str, list[str]] = {name: [] for name in header if name in string_columns}
    numbers, width, count = array("f"), len(encoder.columns.features), 0
    for row in _complete_rows(path, header, rows):
        numbers.extend(encoder.encode(rows.line_num, [row[index] for index in positions]))
        for name, values in strings.items():
            values.append(row[position[name]].strip())
        count += 1
    if count == 0:
        raise UserError(f"data file {str(path)!r} has a header and no row; provide at least one sample")
    limit.check_array((count, width), numbers.itemsize, f"data file {str(path)!r}")
    return Table(path, encoder.columns, np.array(numbers, dtype=np.float32).reshape(count, width), strings)


def _format_columns(names: list[str]) -> str:
    return format_list(name or "''" for name in names)


def _warn_about_features(clients: Table, settings: DataSettings) -> None:
    """Log large features, and columns of row numbers or ids among the features."""
    if settings.standardize is False and np.abs(clients.features).max(initial=0) > LARGE:
        logger.warning(
            "%r: features larger than %g train badly; rescale them, or leave standardize: false out",
            str(clients.path),
            LARGE,
        )
    for index, name in enumerate(clients.columns.features):
        values = clients.features[:, index].tolist()
        # Distinct integers in any order: pandas keeps the original numbers of rows that were shuffled or selected.
        is_index = len(set(values)) == len(values) and all(value.is_integer() for value in values)
        if is_index and ID_COLUMN.fullmatch(name) and len(values) >= _MIN_ID_ROWS:
            logger.warning(
                "%r: the column %r looks like ids and is used as a feature; use it as the ids with "
                "data_args.id_column: %r, or exclude it with data_args.ignore_columns: [%s]",
                str(clients.path),
                name,
                name,
                name,
            )
        if is_index and ROW_NUMBERS.fullmatch(name):
            logger.warning(
                "%r: the column %r numbers the rows and is used as a feature; remove it from both files (pandas: "
                "to_csv(..., index=False)), or use it as the ids with data_args.id_column: %r",
                str(clients.path),
                name,
                name,
            )


def _sort_classes(clients: Table, names: set[str]) -> list[str]:
    """The classes in numerical order, or in alphabetical order if not all are integers."""
    if not all(_INTEGER.fullmatch(name) for name in names):
        return sorted(names)
    counts = Counter(int(name) for name in names)
    duplicates = sorted((name for name in names if counts[int(name)] > 1), key=lambda name: (int(name), name))
    if duplicates:
        logger.warning(
            "%r: the classes %s are the same number in different spellings, and are different classes; write each "
            "class in one way",
            str(clients.path),
            format_list(duplicates),
        )
    return sorted(names, key=lambda name: (int(name), name))


def _to_class_indices(table: Table, labels: Sequence[str], class_names: list[str]) -> Labels:
    number = {name: index for index, name in enumerate(class_names)}
    for row, label in enumerate(labels, start=1):
        if label == "" or label not in number:
            problem = "has no label" if label == "" else f"has the label {quote(label)}, which no client has"
            raise UserError(f"data file {str(table.path)!r}: row {row} {problem}; correct it or remove the row")
    return np.array([number[label] for label in labels], dtype=np.int64)


def _server_labels(server: Table, column: str, class_names: list[str]) -> Labels | None:
    labels = server.strings.get(column)
    # In a spreadsheet, an empty column means that no label is known.
    return None if labels is None or not any(labels) else _to_class_indices(server, labels, class_names)


def _make_users(clients: Table, server: Table, column: str | None) -> Users | None:
    if column is None:
        return None
    owners = clients.strings[column]
    if "" in owners:
        raise UserError(
            f"data file {str(clients.path)!r}: row {owners.index('') + 1} has no {quote(column)}; add the user or "
            "remove the row"
        )
    names = sorted(set(owners))
    number = {name: index for index, name in enumerate(names)}
    # The server's rows belong to no user, even if they are about one.
    no_user = np.full(len(server.features), -1, dtype=np.int64)
    return Users([escape(name) for name in names], np.array([number[name] for name in owners], dtype=np.int64), no_user)
