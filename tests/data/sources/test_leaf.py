"""FEMNIST and Shakespeare from LEAF's JSON."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mrtf_fedml.data import load_source, to_tensor
from mrtf_fedml.data.sources.leaf import ALL_LETTERS
from mrtf_fedml.data.sources.source import Source
from mrtf_fedml.errors import UserError
from tests.data.sources.formats import letters, settings, write_femnist, write_leaf

LINE = "Now is the winter of our discontent Made glorious summer by this sun of York; An"


def windows(text: str) -> tuple[list[str], list[str]]:
    """Each window of 80 characters, and the next."""
    return [text[i : i + 80] for i in range(len(text) - 80)], list(text[80:])


def test_femnist_from_several_files(tmp_path: Path) -> None:
    for number, place in enumerate(("femnist", "femnist/data", "FEMNIST", "data", "")):
        folder = tmp_path / str(number)
        write_femnist(folder / place)
        source = load_source(settings(folder, "femnist"))
        check_femnist(source, f"folder {place!r}")


def check_femnist(source: Source, where: str) -> None:
    """Ten writers of twelve letters each."""
    assert source.x_train.shape == (120, 28, 28), where
    assert source.x_train.dtype == np.uint8, where
    assert source.class_num == 62, where
    assert (source.class_names[0], source.class_names[10], source.class_names[61]) == ("0", "A", "z"), where
    assert source.users is not None, where
    assert source.users.names == [f"f{writer:04d}_14" for writer in range(10)], where
    assert np.bincount(source.users.train).tolist() == [12] * 10, where
    x, y = letters(12, 7)
    own = source.users.train == 7
    assert np.allclose(source.x_train[own].reshape(12, -1) / 255, x, atol=1e-9), where
    assert source.y_train[own].tolist() == y, where
    assert source.ids[0] == "f0000_14:0", where
    # LEAF's white stays white: 1 after normalisation.
    assert to_tensor(np.full((1, 28, 28), 255, np.uint8)).max() == 1, where


def test_leaf_parts_in_one_folder_are_distinguished_by_name(tmp_path: Path) -> None:
    write_femnist(tmp_path / "apart")
    place = tmp_path / "femnist"
    place.mkdir()
    for path in (tmp_path / "apart").rglob("*.json"):
        path.rename(place / path.name)
    assert len(load_source(settings(tmp_path, "femnist")).x_train) == 120


def test_leaf_users_in_one_part_only(tmp_path: Path) -> None:
    write_leaf(tmp_path, "train", 0, {"a": letters(5, 1), "b": letters(5, 2), "nothing": ([], [])})
    write_leaf(tmp_path, "test", 0, {"b": letters(2, 3), "c": letters(2, 4)})
    source = load_source(settings(tmp_path, "femnist"))
    assert source.users is not None
    assert source.users.names == ["a", "b", "c"]
    assert source.users.train.tolist() == [0] * 5 + [1] * 5
    assert source.users.test.tolist() == [1, 1, 2, 2]


def test_leaf_alphabet_has_eighty_letters() -> None:
    assert len(ALL_LETTERS) == len(set(ALL_LETTERS)) == 80


def test_shakespeare_samples_are_integer_indices(tmp_path: Path) -> None:
    text = LINE + "d all the clouds that lour'd upon our house\n"
    write_leaf(tmp_path / "shakespeare", "train", 0, {"KING_RICHARD": windows(text), "DUKE": windows(text[:90])})
    write_leaf(tmp_path / "shakespeare", "test", 0, {"DUKE": windows(text[5:])})
    source = load_source(settings(tmp_path, "shakespeare"))
    assert source.tokens
    assert source.class_num == 80
    assert source.class_names[:2] == ["newline", "space"]
    assert source.users is not None
    king = source.users.train == source.users.names.index("KING_RICHARD")
    assert source.x_train[king][0].tolist() == [ALL_LETTERS.index(letter) for letter in text[:80]]
    assert [ALL_LETTERS[label] for label in source.y_train[king]] == list(text[80:])
    tensor = to_tensor(source.x_train, source.tokens)
    assert (tensor.dtype, tensor.shape) == (torch.int64, (len(source.x_train), 80))


def test_letters_outside_the_alphabet_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = LINE[:-1] + "$" + "dé𝄞 all"
    for part in ("train", "test"):
        write_leaf(tmp_path, part, 0, {"KING": windows(text)})
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        source = load_source(settings(tmp_path, "shakespeare"))
    assert len(source.y_train) == 5
    assert source.x_train[0, -1] == ALL_LETTERS.index(" ")
    assert sum("outside LEAF's alphabet" in message for message in caplog.messages) == 1


def change(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"user_data": None}, "has no mapping 'user_data'"),
        ({"user_data": {}}, "user 'a' has no lists 'x' and 'y'"),
        ({"user_data": {"a": {"x": [[0.5] * 784]}}}, "user 'a' has no lists"),
        ({"user_data": {"a": {"x": [[0.5] * 784], "y": []}}}, "user 'a' has 1 samples but 0 labels"),
        ({"user_data": {"a": {"x": [[0.5] * 783], "y": [1]}}}, "user 'a': a sample has 783 values and not 784"),
        ({"user_data": {"a": {"x": [[0.5] * 3, [1]], "y": [1, 2]}}}, "user 'a': "),
        ({"user_data": {"a": {"x": [[7] * 784], "y": [1]}}}, "values outside 0 to 1"),
        ({"user_data": {"a": {"x": [[0.5] * 784], "y": [62]}}}, "a label is '62', but there are 62 classes"),
        ({"user_data": {"a": {"x": [["x"] * 784], "y": [1]}}}, "user 'a': "),
        ({"users": [], "user_data": {}}, "hold no sample"),
    ],
)
def test_invalid_leaf_file_raises(tmp_path: Path, entries: dict[str, Any], sentence: str) -> None:
    write_leaf(tmp_path, "test", 0, {"a": letters(2, 1)})
    change(write_leaf(tmp_path, "train", 0, {"a": letters(2, 1)}), **entries)
    with pytest.raises(UserError, match=sentence) as caught:
        load_source(settings(tmp_path, "femnist"))
    assert "\n" not in str(caught.value)


def test_invalid_shakespeare_windows_raise(tmp_path: Path) -> None:
    write_leaf(tmp_path, "test", 0, {"a": windows(LINE + "d a")})
    for x, y, sentence in (
        ([LINE, LINE[:-1]], ["a", "b"], "79 to 80 characters"),
        ([LINE], ["ab"], "a label is not a single character"),
        ([5], ["a"], "x and y must be strings"),
    ):
        write_leaf(tmp_path, "train", 0, {"a": (x, y)})
        with pytest.raises(UserError, match=sentence):
            load_source(settings(tmp_path, "shakespeare"))


def test_missing_and_truncated_leaf_files_raise(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"femnist needs LEAF's files '.*femnist/train/\*.json' and .*test.*; put them"):
        load_source(settings(tmp_path, "femnist", download=True))
    write_femnist(tmp_path / "femnist")
    path = next((tmp_path / "femnist/train").iterdir())
    path.write_text(path.read_text()[:-100])
    with pytest.raises(UserError, match=rf"{path.name}' is damaged"):
        load_source(settings(tmp_path, "femnist"))
