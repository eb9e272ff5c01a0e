"""USPS from LIBSVM and HDF5 files."""

from __future__ import annotations

import bz2
from pathlib import Path

import h5py
import numpy as np
import pytest

from mrtf_fedml.data import load_source
from mrtf_fedml.errors import UserError
from tests.data.sources.formats import random_images, settings, write_usps


def test_usps_libsvm_files(tmp_path: Path) -> None:
    for number, place in enumerate(("", "usps", "USPS")):
        folder = tmp_path / str(number)
        images = write_usps(folder / place)
        source = load_source(settings(folder, "usps"))
        assert (source.x_train == images["usps.bz2"]).all(), f"folder {place!r}"
        assert (source.x_test == images["usps.t.bz2"]).all(), f"folder {place!r}"
        assert source.y_train.tolist() == [row % 10 for row in range(20)], f"folder {place!r}"


def test_usps_uncompressed_file_without_zeros(tmp_path: Path) -> None:
    write_usps(tmp_path)
    (tmp_path / "usps").write_text("3 1:-1 256:1\n10 2:0.5\n")
    (tmp_path / "usps.bz2").unlink()
    source = load_source(settings(tmp_path, "usps"))
    assert source.y_train.tolist() == [2, 9]
    assert source.x_train[0].reshape(-1)[[0, 1, 255]].tolist() == [0, 128, 255]


def test_usps_hdf5_file(tmp_path: Path) -> None:
    images = random_images(12, 256)
    with h5py.File(tmp_path / "usps.h5", "w") as file:
        for part in ("train", "test"):
            file[f"{part}/data"] = (images / 255).astype(np.float32)
            file[f"{part}/target"] = np.arange(12) % 10
    source = load_source(settings(tmp_path, "usps"))
    assert (source.x_test == images.reshape(12, 16, 16)).all()
    (tmp_path / "usps.h5").write_bytes(b"no")
    with pytest.raises(UserError, match=r"usps.h5' is damaged"):
        load_source(settings(tmp_path, "usps"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 1:x", "line 1"),
        ("1 1:0.5\n2 300:0.5", "line 2"),
        ("1 0:0.5", "pixel 0 does not exist"),
        ("1 1:9", "does not hold rows of 256 grey values"),
        ("", "x_train is empty"),
        ("0 1:0.5", "line 1: the label is '0' and not 1 to 10"),
    ],
)
def test_damaged_usps_line_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    write_usps(tmp_path)
    (tmp_path / "usps.bz2").write_bytes(bz2.compress(text.encode()))
    with pytest.raises(UserError, match=sentence):
        load_source(settings(tmp_path, "usps"))


def test_missing_and_truncated_usps_files_raise(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"dataset usps needs usps.bz2, usps.t.bz2"):
        load_source(settings(tmp_path, "usps"))
    write_usps(tmp_path)
    (tmp_path / "usps.bz2").write_bytes((tmp_path / "usps.bz2").read_bytes()[:-50])
    with pytest.raises(UserError, match=r"usps.bz2' is damaged"):
        load_source(settings(tmp_path, "usps"))
