"""Pandas tables are encoded as the same table in a CSV file is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from mrtf_fedml.config import DataSettings, RunSettings
from mrtf_fedml.data.data_frames import encode_table, survey_tables
from mrtf_fedml.data.in_memory import from_arrays
from mrtf_fedml.data.sources.csv_files import load_csv
from mrtf_fedml.errors import UserError

LABELS = ["well", "ill"] * 12


def mixed_table() -> pandas.DataFrame:
    """Every kind of column that a user's table has."""
    rows = np.arange(24)
    return pandas.DataFrame(
        {
            "age": pandas.array([None if row == 3 else 20 + row for row in rows], dtype="Int64"),
            "ward": pandas.Categorical(["A", "B", "C"] * 8),
            "smoker": pandas.array([None if row == 5 else bool(row % 2) for row in rows], dtype="boolean"),
            "weight": np.where(rows == 7, np.nan, 50.5 + rows),
            "sex": ["f", "m", None, "f"] * 6,
            "urgent": rows % 3 == 0,
        }
    )


def settings(**keys: Any) -> RunSettings:
    return RunSettings.from_config({"data_args": {"dataset": "arrays", "partition_method": "user", **keys}})


def test_data_frame_gives_the_same_samples_as_its_csv_file(tmp_path: Path) -> None:
    table = mixed_table()
    table.assign(label=LABELS).to_csv(tmp_path / "clients.csv", index=False)
    table.iloc[::-1].to_csv(tmp_path / "server.csv", index=False)
    files = {"data_file": str(tmp_path / "clients.csv"), "server_file": str(tmp_path / "server.csv")}
    source = load_csv(DataSettings(dataset="csv", fill_missing=True, **files))
    clients = [(table[:10], LABELS[:10]), (table[10:], LABELS[10:])]
    dataset, classes = from_arrays(table.iloc[::-1], clients, settings(fill_missing=True, standardize=False))
    assert classes == source.class_names
    assert dataset.preprocessing.columns == source.columns
    np.testing.assert_array_equal(dataset[2].inputs.numpy(), source.x_train)
    np.testing.assert_array_equal(dataset.server_inputs.numpy(), source.x_test)
    assert source.columns is not None
    assert source.columns.features == [
        "age",
        "ward=A",
        "ward=B",
        "ward=C",
        "smoker",
        "weight",
        "sex=f",
        "sex=m",
        "urgent",
    ]


def test_get_dummies_and_convert_dtypes_are_accepted() -> None:
    table = pandas.get_dummies(mixed_table()[["ward", "weight"]].fillna(0.0))
    for version in (table, table.convert_dtypes()):
        dataset, _ = from_arrays(version, [(version, LABELS)], settings(standardize=False))
        assert dataset.input_shape == (4,)


def test_missing_value_without_fill_missing_names_row_column_and_setting() -> None:
    table = mixed_table()[["ward", "weight"]]
    with pytest.raises(UserError, match=r"clients\[1\]'s x, row 2, column 'weight'.*fill_missing"):
        from_arrays(table, [(table[:5], LABELS[:5]), (table[5:], LABELS[5:])], settings())


def test_missing_value_of_server_alone_names_its_place() -> None:
    table = mixed_table()[["urgent", "weight"]]
    complete = table.fillna(1.0).astype(float)
    with pytest.raises(UserError, match=r"x_server, row 7, column 'weight'.*fill_missing"):
        from_arrays(table, [(complete, LABELS)], settings())


def test_text_column_is_named_and_can_be_ignored() -> None:
    table = mixed_table()[["ward"]].assign(name=[f"patient {row}" for row in range(24)])
    with pytest.raises(UserError, match=r"'name'.*ignore_columns"):
        from_arrays(table, [(table, LABELS)], settings())
    dataset, _ = from_arrays(table, [(table, LABELS)], settings(ignore_columns=["name"]))
    assert dataset.input_shape == (3,)


def test_category_type_with_numbers_is_a_category() -> None:
    table = pandas.DataFrame({"code": pandas.Categorical([1, 2, 3] * 8)})
    columns = survey_tables([("clients[0]'s x", table)], fill=False)
    assert columns is not None
    assert columns.levels == {"code": ["1", "2", "3"]}
    assert encode_table(table[1:2], columns, "x").tolist() == [[0.0, 1.0, 0.0]]


def test_unknown_category_of_server_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    table = mixed_table()[["ward"]]
    server = pandas.DataFrame({"ward": ["Z"]})
    dataset, _ = from_arrays(server, [(table, LABELS)], settings(standardize=False))
    assert dataset.server_inputs.tolist() == [[0.0, 0.0, 0.0]]
    assert "ward=Z" in caplog.text


def test_nullable_labels_are_read_and_missing_ones_named() -> None:
    table = mixed_table()[["ward"]]
    labels = pandas.array([0, 1] * 12, dtype="Int64")
    _, classes = from_arrays(table, [(table, labels)], settings())
    assert classes == [0, 1]
    labels[4] = pandas.NA
    with pytest.raises(UserError, match=r"clients\[0\]'s y: the label of sample 4"):
        from_arrays(table, [(table, labels)], settings())
