"""SVHN from Stanford's .mat files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import io as matlab

from mrtf_fedml.data import load_source, to_tensor
from mrtf_fedml.errors import UserError
from tests.data.sources.formats import random_images, settings, write_svhn


def test_svhn_label_ten_is_digit_zero(tmp_path: Path) -> None:
    for number, place in enumerate(("", "svhn", "SVHN")):
        folder = tmp_path / str(number)
        images = write_svhn(folder / place)
        source = load_source(settings(folder, "svhn"))
        assert (source.x_train == images["train"]).all(), f"folder {place!r}"
        assert (source.x_test == images["test"]).all(), f"folder {place!r}"
        assert source.y_train.tolist() == [number % 10 for number in range(30)], f"folder {place!r}"
        assert source.y_test is not None, f"folder {place!r}"
        assert source.y_test[0] == 0, f"folder {place!r}"
        assert to_tensor(source.x_train).shape == (30, 3, 32, 32), f"folder {place!r}"
        assert not source.augments, f"folder {place!r}"


def test_svhn_file_with_single_image(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    matlab.savemat(tmp_path / "test_32x32.mat", {"X": random_images(32, 32, 3), "y": np.array([[10]], np.uint8)})
    source = load_source(settings(tmp_path, "svhn"))
    assert source.x_test.shape == (1, 32, 32, 3)
    assert source.y_test is not None
    assert source.y_test.tolist() == [0]


def test_missing_damaged_and_foreign_svhn_files_raise(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"dataset svhn needs train_32x32.mat, test_32x32.mat"):
        load_source(settings(tmp_path, "svhn"))
    write_svhn(tmp_path)
    whole = (tmp_path / "train_32x32.mat").read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"\x89HDF\r\n", b"not a mat file at all" * 20):
        (tmp_path / "train_32x32.mat").write_bytes(content)
        with pytest.raises(UserError, match=r"train_32x32.mat' is damaged"):
            load_source(settings(tmp_path, "svhn"))
    for arrays, sentence in (
        ({"X": random_images(32, 32, 3, 4)}, "has no array 'y'"),
        ({"X": random_images(4, 32, 32), "y": np.ones((4, 1))}, "X is uint8 of shape"),
        ({"X": random_images(32, 32, 3, 2), "y": np.array([[3], [44]])}, "y holds 3 to 44 instead of 1 to 10"),
        ({"X": random_images(32, 32, 3, 2), "y": np.array([[3]])}, "y_train has 1 entries but x_train has 2"),
    ):
        matlab.savemat(tmp_path / "train_32x32.mat", arrays)
        with pytest.raises(UserError, match=sentence):
            load_source(settings(tmp_path, "svhn"))
