"""Pandas tables as arrays of numbers, by the rules of CSV files: categories, booleans and missing values."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import UserError
from .formatting import format_list
from .sources.csv_columns import Columns, ColumnSurvey, RowEncoder
from .sources.source import Array

logger = logging.getLogger("mrtf_fedml")


def column_names(samples: Any) -> list[str] | None:
    """The column names of a table; None for other types."""
    columns = getattr(samples, "columns", None)
    return None if columns is None else [str(name) for name in columns]


def is_data_frame(samples: Any) -> bool:
    """Whether the samples are a pandas table."""
    return all(hasattr(samples, name) for name in ("columns", "dtypes", "iloc", "isna"))


def drop_columns(table: Any, names: Sequence[str]) -> Any:
    """The table without these columns; a table that lacks some of them is accepted."""
    if not names or not is_data_frame(table):
        return table
    return table.iloc[:, [index for index, name in enumerate(table.columns) if str(name) not in names]]


def survey_tables(tables: Sequence[tuple[str, Any]], fill: bool) -> Columns | None:
    """How the columns of the clients' tables become features.

    None if every column of every table is of numbers without a missing value: the values are the features.

    Args:
        tables: for each client its name in messages and its table; all have the columns of the first.
        fill: whether missing values are replaced: numbers by the clients' mean, categories by no category.
    """
    if all(is_numeric(table) for _, table in tables):
        return None
    names = column_names(tables[0][1]) or []
    categories = {
        name
        for _, table in tables
        for name, dtype in zip(column_names(table) or [], table.dtypes, strict=True)
        if str(dtype) == "category"
    }
    survey = ColumnSurvey("", names, decimal_comma=False, categories=categories)
    for what, table in tables:
        survey.origin = what
        for number, row in enumerate(_rows(reorder_columns(table, names, what))):
            survey.add_row(number, row, unit="row")
    survey.origin = "the clients' tables"
    return survey.columns(fill)


def encode_table(table: Any, columns: Columns, what: str) -> Array:
    """The features [N, D] of a table; a category that no client has is logged.

    Args:
        table: any order of columns.
        columns: of the clients' tables.
        what: its name in messages.
    """
    encoder = RowEncoder(what, columns, decimal_comma=False, unit="row")
    rows = _rows(reorder_columns(table, columns.names, what))
    encoded = [encoder.encode(number, row) for number, row in enumerate(rows)]
    warning = encoder.unknown_categories_message()
    if warning is not None:
        logger.warning("%s", warning)
    return np.array(encoded, dtype=np.float32).reshape(len(encoded), len(columns.features))


def reorder_columns(table: Any, columns: Sequence[str], what: str) -> Any:
    """The table with its columns in this order, matched by name."""
    own = column_names(table) or []
    if own == list(columns):
        return table
    missing, unknown = [name for name in columns if name not in own], [name for name in own if name not in columns]
    if missing or unknown:
        problem = (
            f"lacks the column {format_list(missing)}"
            if missing
            else f"has the column {format_list(unknown)}, others do not"
        )
        raise UserError(f"{what} {problem}; give all parties the same features, or exclude some with ignore_columns")
    return table.iloc[:, [own.index(name) for name in columns]]


def non_numeric_columns(table: Any) -> list[str]:
    """The columns that are not plain numbers, or that have a missing value."""
    # Extension types such as Int64 have a kind too; numpy makes objects of their missing values.
    is_plain = [getattr(dtype, "kind", "O") in "uif" for dtype in table.dtypes]
    has_missing = table.isna().to_numpy().any(axis=0)
    return [
        str(name)
        for name, plain, missing in zip(table.columns, is_plain, has_missing, strict=True)
        if missing or not plain
    ]


def is_numeric(table: Any) -> bool:
    """Whether all columns are numbers, without a missing value."""
    return not non_numeric_columns(table)


def _rows(table: Any) -> Iterator[tuple[str, ...]]:
    """Each row as strings, as in a CSV file; a missing value is empty."""
    columns = []
    for index in range(table.shape[1]):
        column = table.iloc[:, index]
        is_missing = column.isna().to_numpy()
        values = column.astype(object).to_numpy()
        columns.append(["" if gone else str(value) for gone, value in zip(is_missing, values, strict=True)])
    return zip(*columns, strict=True)
