"""The memory limit `max_memory_mb` for every format."""

from __future__ import annotations

import bz2
import gzip
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from scipy import io as matlab

from mrtf_fedml.config import DataSettings, RunSettings
from mrtf_fedml.data import Source, load, load_source
from mrtf_fedml.data.sources.party_file import read_party_file
from mrtf_fedml.errors import UserError
from tests.data.sources.formats import random_images, write_image, write_mnist, write_svhn, write_usps

#: A few times what each file here would take, and a fifth of what the files announce.
LIMIT = 8
BOMB = 40_000_000


@contextmanager
def limited_memory() -> Iterator[None]:
    """What happens inside takes less than what the file asks for."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < BOMB
    finally:
        tracemalloc.stop()


def memory_error(folder: Path, dataset: str, **keys: Any) -> str:
    settings = DataSettings(dataset=dataset, data_cache_dir=str(folder), max_memory_mb=LIMIT, **keys)
    sentence = r"needs \d+ MB of memory, more than data_args.max_memory_mb \(8\)"
    with limited_memory(), pytest.raises(UserError, match=sentence) as caught:
        load_source(settings)
    return str(caught.value)


def write_bomb(file: Path, key: str = "x_test") -> None:
    """An .npz file of some kilobytes, whose zeros take forty megabytes."""
    zeros = np.broadcast_to(np.zeros(1, np.uint8), (BOMB // 100, 100))
    arrays = {"x_train": zeros[:2], "y_train": [0, 1], "x_test": zeros[:2], "class_names": ["a", "b"]}
    np.savez_compressed(file, **(arrays | {key: zeros}))
    assert file.stat().st_size < BOMB / 500


def test_npz_array_beyond_memory_limit_raises(tmp_path: Path) -> None:
    for key in ("x_train", "x_test", "ids"):
        write_bomb(tmp_path / "own.npz", key)
        message = memory_error(tmp_path, "npz", data_file=str(tmp_path / "own.npz"))
        assert f"array {key!r} needs 40 MB" in message


def test_npz_arrays_together_beyond_memory_limit_raise(tmp_path: Path) -> None:
    x = np.zeros((40_000, 100), np.uint8)
    np.savez_compressed(tmp_path / "own.npz", x_train=x, y_train=np.arange(40_000) % 2, x_test=x)
    assert "own.npz' needs 9 MB" in memory_error(tmp_path, "npz", data_file=str(tmp_path / "own.npz"))


def test_party_file_beyond_memory_limit_raises(tmp_path: Path) -> None:
    write_bomb(tmp_path / "own.npz")
    settings = DataSettings(own_data_file=str(tmp_path / "own.npz"), max_memory_mb=LIMIT)
    with limited_memory(), pytest.raises(UserError, match="array 'x_test' needs 40 MB of memory"):
        read_party_file(settings, 0)
    # Other arrays of a silo's file are not read.
    assert isinstance(read_party_file(settings, 1), Source)


def test_compressed_files_beyond_memory_limit_raise(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(BOMB // 2)))
    assert "t10k-labels-idx1-ubyte.gz', unpacked, needs 9 MB" in memory_error(tmp_path, "mnist")
    write_usps(tmp_path)
    (tmp_path / "usps.bz2").write_bytes(bz2.compress(bytes(BOMB // 2)))
    assert "usps.bz2', unpacked, needs 9 MB" in memory_error(tmp_path, "usps")
    # Not one byte a line: each line is a picture.
    (tmp_path / "usps.bz2").write_bytes(bz2.compress(b"1 1:0\n" * 10_000))
    assert "usps.bz2' needs 21 MB" in memory_error(tmp_path, "usps")


def test_large_files_beyond_memory_limit_raise(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    for name in ("train-images-idx3-ubyte", "clients.csv"):
        with (tmp_path / name).open("ab") as file:
            # Long without having the bytes.
            file.truncate(2**40)
    assert "train-images-idx3-ubyte' needs 1099512 MB" in memory_error(tmp_path, "mnist")
    assert "clients.csv' needs" in memory_error(tmp_path, "csv", data_file=str(tmp_path / "clients.csv"))


def test_images_beyond_memory_limit_raise(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        write_image(tmp_path / "clients" / name / "1.png", random_images(8, 6))
        write_image(tmp_path / "server" / f"{name}.png", random_images(8, 6))
    folders = {"data_file": str(tmp_path / "clients"), "server_file": str(tmp_path / "server")}
    assert "the 2 images in" in memory_error(tmp_path, "images", image_size=3000, **folders)
    write_image(tmp_path / "server/large.png", np.zeros((3000, 1000), np.uint8))
    assert "large.png' needs 12 MB" in memory_error(tmp_path, "images", **folders)


def test_matlab_hdf5_and_torch_beyond_memory_limit_raise(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    large = {"X": np.zeros((32, 32, 3, 4000), np.uint8), "y": np.ones((4000, 1))}
    matlab.savemat(tmp_path / "train_32x32.mat", large, do_compression=True)
    assert "train_32x32.mat': X needs 13 MB" in memory_error(tmp_path, "svhn")
    with h5py.File(tmp_path / "usps.h5", "w") as file:
        for part in ("train", "test"):
            file.create_dataset(f"{part}/data", shape=(10**10, 256), dtype="f4", chunks=(1, 256))
            file[f"{part}/target"] = [1]
    assert "usps.h5' needs" in memory_error(tmp_path, "usps")
    for part in ("train", "test"):
        endless = torch.zeros(1, dtype=torch.uint8).expand(10**9, 28, 28, 3)
        torch.save((endless, torch.zeros(3)), tmp_path / f"mnist_m_{part}.pt")
    assert "mnist_m_train.pt' needs" in memory_error(tmp_path, "mnistm")


def test_memory_limit_can_be_raised(tmp_path: Path) -> None:
    x = np.zeros((100, 20_000), np.float32)
    np.savez_compressed(tmp_path / "own.npz", x_train=x, y_train=np.arange(100) % 2, x_test=x[:1])
    keys = {"dataset": "npz", "data_file": str(tmp_path / "own.npz"), "partition_method": "iid"}
    with pytest.raises(UserError, match="max_memory_mb"):
        load(RunSettings(data=DataSettings(**keys, max_memory_mb=LIMIT)))
    assert load(RunSettings(data=DataSettings(**keys, max_memory_mb=20))).server_inputs.shape == (1, 20_000)
