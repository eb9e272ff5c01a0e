"""CSV tables of the clients and the server."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mrtf_fedml.config import DataSettings
from mrtf_fedml.data import load_source
from mrtf_fedml.data.sources.source import Source
from mrtf_fedml.errors import UserError

CLIENTS = "age,weight,label,clinic\n0.5,1.5,ill,B\n-0.25,2e-1,well,A\n1,0,ill,B\n"
SERVER = "id,weight,age\nrow-7,3,4\nrow-8,5,6\n"


def load(folder: Path, clients: str = CLIENTS, server: str = SERVER, **keys: Any) -> Source:
    (folder / "clients.csv").write_text(clients)
    (folder / "server.csv").write_text(server)
    files = {"data_file": str(folder / "clients.csv"), "server_file": str(folder / "server.csv")}
    return load_source(DataSettings(dataset="csv", **{"user_column": "clinic", **files, **keys}))


def test_csv_features_classes_ids_and_users(tmp_path: Path) -> None:
    source = load(tmp_path)
    assert np.allclose(source.x_train, [[0.5, 1.5], [-0.25, 0.2], [1, 0]])
    assert source.x_train.dtype == np.float32
    assert source.class_names == ["ill", "well"]
    assert source.y_train.tolist() == [0, 1, 0]
    assert source.x_test.tolist() == [[4, 3], [6, 5]]
    assert source.y_test is None
    assert source.ids == ["row-7", "row-8"]
    assert source.users is not None
    assert source.users.names == ["A", "B"]
    assert source.users.train.tolist() == [1, 0, 1]


def test_integer_classes_are_sorted_numerically(tmp_path: Path) -> None:
    clients = "x,kind\n" + "".join(f"0,{kind}\n" for kind in (10, 2, 1))
    source = load(tmp_path, clients, "x\n1\n", label_column="kind", user_column=None)
    assert source.class_names == ["1", "2", "10"]
    assert source.ids == ["0"]


def test_server_csv_labels_are_read_if_present(tmp_path: Path) -> None:
    source = load(tmp_path, server="age,weight,label\n1,2,well\n3,4,ill\n")
    assert source.y_test is not None
    assert source.y_test.tolist() == [1, 0]
    assert load(tmp_path, server="age,weight,label\n1,2,\n3,4,\n").y_test is None


def test_csv_with_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    source = load(tmp_path, "\ufeff" + CLIENTS.replace("\n", "\r\n") + "\r\n", SERVER)
    assert len(source.x_train) == 3


def test_large_features_are_logged_without_standardization(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        load(tmp_path, CLIENTS.replace("1.5", "15000"))
        assert "train badly" not in caplog.text
        load(tmp_path, CLIENTS.replace("1.5", "15000"), standardize=False)
    assert "features larger than 100 train badly" in caplog.text


MISTAKES: list[tuple[str, str, dict[str, Any], str]] = [
    (CLIENTS.replace("1.5", "nan"), SERVER, {}, "line 2, column 'weight': 'nan'"),
    (CLIENTS.replace("2e-1", ""), SERVER, {}, "line 3, column 'weight': the value is missing"),
    (CLIENTS.replace("2e-1", "tall"), SERVER, {}, "line 3, column 'weight': 'tall'"),
    (CLIENTS, SERVER.replace("6", "inf"), {}, "server.csv', line 3, column 'age': 'inf'"),
    (CLIENTS.replace("1.5,", ""), SERVER, {}, "line 2: 3 values where the header has 4"),
    (
        CLIENTS,
        SERVER,
        {"label_column": "lable"},
        r"has no column 'lable'; correct data_args.label_column \(did you",
    ),
    (CLIENTS, SERVER, {"user_column": "house"}, "has no column 'house'; correct data_args.user_column"),
    (CLIENTS, SERVER, {"id_column": "name"}, "server.csv' has no column 'name'; correct data_args.id_column"),
    (CLIENTS.replace("well", ""), SERVER, {}, "row 2 has no label"),
    (CLIENTS, SERVER + "row-9,7\n", {}, "line 4: 2 values"),
    (CLIENTS, SERVER.replace("age", "height"), {}, "server.csv' lacks the feature age"),
    (CLIENTS, "age,weight,more\n1,2,3\n", {}, "has the column more that the clients lack"),
    (CLIENTS, "age,weight,label\n1,2,dead\n", {}, "row 1 has the label 'dead', which no client has"),
    (CLIENTS, "age,weight\n", {}, "has a header and no row"),
    ("", SERVER, {}, "has no header"),
    ("a,a,label\n1,2,x\n", SERVER, {}, "has the column a twice"),
    ("label,clinic\nx,A\ny,A\n", SERVER, {}, "has no feature"),
    (CLIENTS.replace("well", "ill"), SERVER, {}, "a classifier needs at least two"),
    (CLIENTS, SERVER, {"data_file": None}, "data_args.data_file"),
    (CLIENTS, SERVER, {"server_file": None}, "data_args.server_file"),
    (CLIENTS, SERVER, {"server_file": "/no/such.csv"}, "such.csv' does not exist"),
]


@pytest.mark.parametrize(
    ("clients", "server", "keys", "sentence"), MISTAKES, ids=[sentence for *_, sentence in MISTAKES]
)
def test_csv_error_names_row_and_column(
    tmp_path: Path, clients: str, server: str, keys: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        load(tmp_path, clients, server, **keys)
    assert "\n" not in str(caught.value)


def test_binary_csv_raises(tmp_path: Path) -> None:
    load(tmp_path)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00age")
    with pytest.raises(UserError, match=r"binary.csv' is not a csv file"):
        load(tmp_path, data_file=str(tmp_path / "binary.csv"))


def test_class_order_is_equal_in_every_process(tmp_path: Path) -> None:
    load(tmp_path, "x,label\n" + "".join(f"0,{name}\n" for name in ("1", "01", "2", "001")), "x\n1\n", user_column=None)
    code = (
        "from mrtf_fedml.data import load_source; from mrtf_fedml.config import DataSettings;"
        f"s = load_source(DataSettings(dataset='csv', data_file={str(tmp_path / 'clients.csv')!r},"
        f" server_file={str(tmp_path / 'server.csv')!r})); print(s.class_names, s.y_train.tolist())"
    )
    # Python draws the order of a set of texts anew for each process, from this seed where it is given.
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "2")
    ]
    assert outputs == ["['001', '01', '1', '2'] [2, 1, 3, 0]\n"] * 2


def test_classes_of_the_same_number_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        load(tmp_path, "x,label\n0,1\n0,01\n0,2\n", "x\n1\n", user_column=None)
    assert "the classes 01, 1 are the same number" in caplog.text


def test_classes_that_are_not_all_integers_are_sorted_alphabetically(tmp_path: Path) -> None:
    labels = ["--5", "3", "-7", "7" * 5000]
    source = load(tmp_path, "x,label\n" + "".join(f"0,{name}\n" for name in labels), "x\n1\n", user_column=None)
    assert source.class_names == sorted(labels)
    source = load(tmp_path, "x,label\n0,5\n0,-7\n0,-0\n0,0\n", "x\n1\n", user_column=None)
    assert source.class_names == ["-7", "-0", "0", "5"]


@pytest.mark.parametrize("name", ["Unnamed: 0", ""])
@pytest.mark.parametrize("rows", [(0, 1, 2), (7, 3, 5)], ids=["in order", "shuffled"])
def test_pandas_row_number_column_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, rows: tuple[int, int, int]
) -> None:
    clients = f"{name},x,label\n{rows[0]},5,a\n{rows[1]},6,b\n{rows[2]},7,a\n"
    server = f"{name},x\n0,5\n1,6\n"
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        assert load(tmp_path, clients, server, user_column=None).x_train.shape == (3, 2)
    assert f"the column {name!r} numbers the rows" in caplog.text
    caplog.clear()
    # As the message says, it can be the ids instead.
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        source = load(tmp_path, clients, server, user_column=None, id_column=name)
    assert (source.x_train.shape, source.ids, caplog.text) == ((3, 1), ["0", "1"], "")
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        load(tmp_path, clients.replace(f"\n{rows[2]},7", f"\n{rows[1]},7"), server, user_column=None)
    assert caplog.text == "", "a number that comes twice is no row's"


def test_csv_row_without_user_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="row 2 has no 'clinic'"):
        load(tmp_path, CLIENTS.replace("well,A", "well,"))


def test_wide_table_is_read_in_linear_time(tmp_path: Path) -> None:
    """With 40000 columns, looking each up in a list would take minutes."""
    names = ",".join(f"gene {number}" for number in range(40_000))
    values = ",".join(["1"] * 40_000)
    source = load(tmp_path, f"{names},label\n{values},a\n{values},b\n", f"{names}\n{values}\n", user_column=None)
    assert source.x_train.shape == (2, 40_000)


def test_csv_path_to_a_pipe_raises(tmp_path: Path) -> None:
    load(tmp_path)
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(UserError, match=r"pipe.csv' is a pipe.*data_args.data_file"):
        load(tmp_path, data_file=str(tmp_path / "pipe.csv"))


def test_csv_with_too_many_columns_raises(tmp_path: Path) -> None:
    names = ",".join(map(str, range(100_001)))
    with pytest.raises(UserError, match="has 100002 columns, more than 100000"):
        load(tmp_path, f"{names},label\n", user_column=None)


@pytest.mark.parametrize("cell", ["1,", '"a\n",'])
def test_csv_with_too_long_row_raises_before_it_is_read_whole(tmp_path: Path, cell: str) -> None:
    row = cell * (10_000_001 // len(cell) + 1)
    with pytest.raises(UserError, match=r"the row at line [0-9]+ has more than 10000000 characters"):
        load(tmp_path, f"a,label\n{row}\n", user_column=None)


def test_categories_become_one_feature_per_value(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clients = "colour,age,label\nred,1,a\nblue,2,b\nred,3,a\n"
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        source = load(tmp_path, clients, "age,colour\n4,blue\n5,violet\n", user_column=None)
    assert source.features == ["colour=blue", "colour=red", "age"]
    assert source.x_train.tolist() == [[0, 1, 1], [1, 0, 2], [0, 1, 3]]
    assert source.x_test.tolist() == [[1, 0, 4], [0, 0, 5]]
    assert "no client has the category colour=violet (1 rows)" in caplog.text


def test_missing_values_are_filled_with_fill_missing(tmp_path: Path) -> None:
    clients = "colour,age,label\nred,1,a\n,NA,b\nblue,3,a\n"
    server = "age,colour\n-,?\n"
    with pytest.raises(UserError, match=r"line 3, column 'colour': .*fill_missing"):
        load(tmp_path, clients, server, user_column=None)
    source = load(tmp_path, clients, server, user_column=None, fill_missing=True)
    assert source.x_train.tolist() == [[0, 1, 1], [0, 0, 2], [1, 0, 3]]
    assert source.x_test.tolist() == [[0, 0, 2]]
    with pytest.raises(UserError, match="the column 'age' has no value in any row"):
        load(tmp_path, "age,x,label\n,1,a\n,2,b\n", "age,x\n1,1\n", user_column=None, fill_missing=True)


def test_id_like_columns_raise_or_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [f"patient {n},{n + 100},{n % 7},{'ab'[n % 2]}" for n in range(30)]
    clients = "\n".join(["name,patient_id,x,label", *rows]) + "\n"
    server = "name,patient_id,x\nnobody,7,1\n"
    with pytest.raises(UserError, match=r"'name' has more than 29 different strings.*ignore_columns: \[name\]"):
        load(tmp_path, clients, server, user_column=None)
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        source = load(tmp_path, clients, server, user_column=None, ignore_columns="name")
    assert source.features == ["patient_id", "x"]
    assert "'patient_id' looks like ids" in caplog.text
    with_ids = {"id_column": "patient_id", "ignore_columns": ["name"]}
    source = load(tmp_path, clients, server, user_column=None, **with_ids)
    assert (source.features, source.ids) == (["x"], ["7"])
    with pytest.raises(UserError, match=r"has no column 'nam'; correct data_args\.ignore_columns"):
        load(tmp_path, clients, server, user_column=None, ignore_columns=["nam"])


def test_other_separators_and_decimal_commas_are_detected(tmp_path: Path) -> None:
    clients, server = "age;weight;label\n1,5;2;a\n3;-0,25;b\n", "weight\tage\n1.5\t2\n"
    source = load(tmp_path, clients, server, user_column=None)
    assert source.x_train.tolist() == [[1.5, 2], [3, -0.25]]
    assert source.x_test.tolist() == [[2, 1.5]]
    strange = "age:weight:label\n1:2:a\n"
    with pytest.raises(UserError, match=r"has no column 'label'.*data_args.separator"):
        load(tmp_path, strange, server, user_column=None)
    assert len(load(tmp_path, strange + "3:4:b\n", "weight:age\n1:2\n", user_column=None, separator=":").x_train) == 2
