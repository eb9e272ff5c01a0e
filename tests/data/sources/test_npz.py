"""A user's own arrays, and the errors of invalid ones."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mrtf_fedml.config import DataSettings
from mrtf_fedml.data.sources import load_source
from mrtf_fedml.data.sources.source import Source
from mrtf_fedml.errors import UserError


def arrays(**changes: Any) -> dict[str, Any]:
    """Six client samples and three server samples that pass, with changes; None leaves an array out."""
    rng = np.random.default_rng(0)
    good = {
        "x_train": rng.integers(0, 256, (6, 4, 4), dtype=np.uint8),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": rng.integers(0, 256, (3, 4, 4), dtype=np.uint8),
        "y_test": np.array([2, 1, 0]),
    }
    return {key: value for key, value in {**good, **changes}.items() if value is not None}


def load(file: Path) -> Source:
    return load_source(DataSettings(dataset="npz", data_file=str(file)))


def save(folder: Path, **changes: Any) -> Path:
    file = folder / "mine.npz"
    np.savez(file, **arrays(**changes))
    return file


def test_npz_arrays_are_read_unchanged(tmp_path: Path) -> None:
    file = save(tmp_path, ids=np.array(["a.png", "b.png", "ü.png"]), class_names=np.array(["x", "y", "z"]))
    source, given = load(file), arrays()
    assert (source.x_train == given["x_train"]).all()
    assert (source.x_test == given["x_test"]).all()
    assert source.y_train.tolist() == [0, 1, 2, 0, 1, 2]
    assert source.y_test is not None
    assert source.y_test.tolist() == [2, 1, 0]
    assert source.y_train.dtype == source.y_test.dtype == np.int64
    assert (source.name, source.ids, source.class_names) == (
        "mine",
        ["a.png", "b.png", "ü.png"],
        ["x", "y", "z"],
    )


def test_unprintable_string_labels_are_escaped(tmp_path: Path) -> None:
    source = load(save(tmp_path, y_train=np.array([b"caf\xe9", b"tea", b"a\nb"] * 2), y_test=None))
    assert source.class_names == ["a\\x0ab", "caf\\xe9", "tea"]
    assert source.y_train.tolist() == [1, 2, 0] * 2


def test_empty_string_label_raises(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="y_train has no label at sample 1"):
        load(save(tmp_path, y_train=np.array(["tea", "", "milk"] * 2), y_test=None))


def test_similar_class_names_and_duplicate_ids_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    letters, words = np.array(["a", "A", "b"] * 2), np.array(["Tea", "tea ", "milk"] * 2)
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        load(save(tmp_path, y_train=letters, y_test=None, ids=np.array(["1", "2", "3"])))
        assert caplog.messages == []
        load(save(tmp_path, y_train=words, y_test=None, ids=np.array(["1", "2", "1"])))
    similar, duplicate = caplog.messages
    assert "the classes 'Tea', 'tea ' differ only in case" in similar
    assert "the id '1' occurs more than once" in duplicate


def test_npz_defaults_without_labels_ids_and_names(tmp_path: Path) -> None:
    source = load(save(tmp_path, y_test=None))
    assert source.y_test is None
    assert source.ids == ["0", "1", "2"]
    assert source.class_names == ["0", "1", "2"]


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.float64, np.uint64])
def test_integer_labels_of_any_dtype_and_as_a_column(tmp_path: Path, kind: type) -> None:
    source = load(save(tmp_path, y_train=np.array([[0], [1], [2], [0], [1], [2]], dtype=kind)))
    assert source.y_train.tolist() == [0, 1, 2, 0, 1, 2]


def test_class_count_is_independent_of_y_test(
    tmp_path: Path,
) -> None:
    assert load(save(tmp_path, y_test=np.zeros(3, int))).class_num == 3
    assert load(save(tmp_path, class_names=np.array(list("abcde")))).class_num == 5


def test_ids_as_bytes_and_integers(tmp_path: Path) -> None:
    assert load(save(tmp_path, ids=np.array([b"a", b"b", b"c"]))).ids == ["a", "b", "c"]
    assert load(save(tmp_path, ids=np.array([10, 20, 30]))).ids == ["10", "20", "30"]


def test_uint8_rows_are_read_as_numbers_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = save(tmp_path, x_train=np.zeros((6, 16), np.uint8), x_test=np.zeros((3, 16), np.uint8))
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        load(file)
    assert "N,H,W" in caplog.text


def _with_one_value(shape: tuple[int, ...], value: float) -> Any:
    array = np.zeros(shape)
    array[2, 1] = value
    return array


WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"x_train": None},
        r"has no array 'x_train' \(it holds y_train, x_test, y_test\); add it with numpy.savez",
    ),
    ({"y_train": None}, "has no array 'y_train'"),
    ({"x_test": None}, "has no array 'x_test'"),
    (
        {"x_train": np.zeros((0, 4, 4), np.uint8)},
        r"x_train is empty \(shape \(0, 4, 4\)\)",
    ),
    ({"x_test": np.zeros((0, 4, 4), np.uint8)}, "x_test is empty"),
    ({"y_train": np.zeros(0, int)}, "y_train is empty"),
    ({"y_test": np.zeros(0, int)}, "y_test is empty; .*leave y_test out"),
    ({"y_train": np.array([0, 1, 2])}, "y_train has 3 entries but x_train has 6"),
    ({"y_test": np.array([0, 1])}, "y_test has 2 entries but x_test has 3"),
    ({"y_train": np.eye(3)[[0, 1, 2, 0, 1, 2]]}, r"y_train has shape \(6, 3\); .*argmax"),
    ({"y_train": np.array([0, 1, 2, 0, 1, 1.5])}, "y_train holds values that are not integers"),
    ({"y_train": np.array([0, 1, 2, 0, 1, np.nan])}, "y_train holds values that are not integers"),
    ({"y_train": np.array([0, 1, 2, 0, 1, np.inf])}, "y_train holds values that are not integers"),
    ({"y_train": np.array([0, 1, 2, 0, 1, -1])}, "y_train holds the negative class -1; number the classes"),
    ({"y_test": np.array([-1, -1, -1])}, "y_test holds the negative class -1; .*leave y_test out"),
    ({"y_train": np.array([0, 1, 2, 0, 1, 10**9])}, "y_train holds the class 1000000000, too large"),
    ({"y_train": np.array([0, 1, 2, 0, 1, 2**64 - 1], np.uint64)}, "too large for a class number"),
    ({"y_train": np.array(list("abcabc"))}, "y_test has the label '2', which no client has"),
    ({"y_train": np.zeros(6, int), "y_test": None}, "y_train holds the single class 0; .*at least two"),
    (
        {"y_test": np.array([0, 1, 3])},
        "y_test holds class 3, but y_train has only 0 to 2",
    ),
    (
        {"x_train": _with_one_value((6, 4), np.nan), "x_test": np.zeros((3, 4))},
        r"x_train holds NaN .*sample 2\); remove",
    ),
    (
        {"x_train": np.zeros((6, 4)), "x_test": _with_one_value((3, 4), np.inf)},
        "x_test holds NaN or infinite",
    ),
    (
        {"x_train": _with_one_value((6, 4), 1e300), "x_test": np.zeros((3, 4))},
        "x_train holds NaN or infinite",
    ),
    (
        {"x_test": np.zeros((3, 5, 4), np.uint8)},
        r"x_train has shape \(4, 4\) but one of x_test \(5, 4\); bring",
    ),
    ({"x_test": np.zeros((3, 4, 4))}, "x_train holds uint8 but x_test float64"),
    ({"x_train": np.zeros(6)}, r"x_train has shape \(6,\)"),
    ({"x_train": np.zeros((6, 4), complex)}, "x_train holds complex128 instead of numbers"),
    ({"x_train": np.full((6, 4), "a")}, "x_train holds <U1 instead of numbers"),
    ({"x_train": np.full((6, 4), None)}, "array 'x_train' cannot be read .*write plain numbers"),
    ({"ids": np.array(["a", "b"])}, "ids has 2 entries but x_test has 3"),
    (
        {"ids": np.array([["a"], ["b"], ["c"]])},
        r"ids must be .* not <U1 of shape \(3, 1\)",
    ),
    ({"class_names": np.array(["a", "b"])}, "class_names has 2 names but y_train holds class 2; name every"),
    ({"class_names": np.array(["a", "b", "a"])}, "class_names has 'a' twice"),
    ({"class_names": np.array(["a", "b", "c" * 200_000])}, "of 200000 characters"),
]


@pytest.mark.parametrize(("changes", "sentence"), WRONG)
def test_invalid_array_error_names_file_and_array(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        load(save(tmp_path, **changes))
    assert "mine.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_npz_without_data_file_raises() -> None:
    with pytest.raises(UserError, match=r"data_args\.data_file"):
        load_source(DataSettings(dataset="npz"))


def test_missing_npz_file_and_folder_raise(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.npz' does not exist; correct data_args.data_file"):
        load(tmp_path / "absent.npz")
    with pytest.raises(UserError, match="is a folder, not a file"):
        load(tmp_path)
    with pytest.raises(UserError, match=r"~nosuchuser/own\.npz' does not exist"):
        load(Path("~nosuchuser/own.npz"))
    os.mkfifo(tmp_path / "pipe.npz")
    for place in (tmp_path / "pipe.npz", Path("/dev/zero")):
        with pytest.raises(UserError, match="is a pipe, a socket or a device, not a regular file"):
            load(place)


@pytest.mark.parametrize("content", [b"", b"x_train,y_train\n1,2\n", b"\x80\x04N.", b"PK\x03\x04 and nothing more"])
def test_file_that_is_not_npz_raises(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other.npz"
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"other.npz' cannot be read as an \.npz file .*write it again"):
        load(file)


def test_single_npy_array_raises(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(UserError, match=r"one.npy' holds a single array; write one \.npz file"):
        load(tmp_path / "one.npy")


def test_every_truncated_npz_is_a_user_error(tmp_path: Path) -> None:
    whole = save(tmp_path).read_bytes()
    file = tmp_path / "cut.npz"
    for length in range(0, len(whole) - 1, 97):
        file.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"cut\.npz"):
            load(file)


def test_damaged_npz_bytes_are_detected(tmp_path: Path) -> None:
    whole = bytearray(save(tmp_path).read_bytes())
    at = whole.find(arrays()["x_train"].tobytes())
    whole[at + 5] ^= 0xFF
    file = tmp_path / "damaged.npz"
    file.write_bytes(whole)
    with pytest.raises(UserError, match=r"damaged\.npz': array 'x_train' cannot be read"):
        load(file)


def test_npz_users_and_alphabet(tmp_path: Path) -> None:
    file = tmp_path / "text.npz"
    x = np.array([[0, 2], [1, 1], [2, 0]], dtype=np.uint8)
    users = {"u_train": np.array(["eve", "bob", "eve"]), "u_test": np.array(["bob", "ann", "eve"])}
    np.savez(file, x_train=x, y_train=[0, 1, 2], x_test=x, alphabet="abc ", **users)
    source = load_source(DataSettings(dataset="npz", data_file=str(file)))
    assert source.tokens
    assert source.class_names == ["a", "b", "c", "space"]
    assert source.users is not None
    assert source.users.names == ["ann", "bob", "eve"]
    assert source.users.train.tolist() == [2, 1, 2]
    assert source.users.test.tolist() == [1, 0, 2]
    np.savez(file, x_train=x, y_train=[0, 1, 2], x_test=x, u_train=[7, 5, 7])
    source = load_source(DataSettings(dataset="npz", data_file=str(file)))
    assert source.users is not None
    assert (source.users.names, source.users.test.tolist()) == (["5", "7"], [-1, -1, -1])
    for more, sentence in (
        ({"u_train": [1, 2]}, "u_train must have one user per sample"),
        ({"u_train": [1, 2, 3], "u_test": [[1], [2], [3]]}, "u_test must have one user per sample"),
        ({"alphabet": "ab"}, "x_train must hold integers from 0 to 1"),
    ):
        np.savez(file, x_train=x, y_train=[0, 1, 2], x_test=x, **more)
        with pytest.raises(UserError, match=sentence):
            load_source(DataSettings(dataset="npz", data_file=str(file)))


def test_npz_string_labels_are_numbered(tmp_path: Path) -> None:
    x = np.zeros((3, 2))
    np.savez(tmp_path / "own.npz", x_train=x, y_train=["dog", "cat", "dog"], x_test=x, y_test=["cat", "cat", "dog"])
    settings = DataSettings(dataset="npz", data_file=str(tmp_path / "own.npz"))
    source = load_source(settings)
    assert (source.class_names, source.y_train.tolist()) == (["cat", "dog"], [1, 0, 1])
    assert source.y_test is not None
    assert source.y_test.tolist() == [0, 0, 1]
    np.savez(
        tmp_path / "own.npz", x_train=x, y_train=["dog", "cat", "dog"], x_test=x, class_names=["dog", "cow", "cat"]
    )
    assert load_source(settings).y_train.tolist() == [0, 2, 0]
    np.savez(tmp_path / "own.npz", x_train=x, y_train=["dog", "cat", "dog"], x_test=x, y_test=["cat", "cow", "dog"])
    with pytest.raises(UserError, match="y_test has the label 'cow', which no client has"):
        load_source(settings)
