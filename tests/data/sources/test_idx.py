"""MNIST and Fashion-MNIST from idx files."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from mrtf_fedml.data.sources import load_source
from mrtf_fedml.errors import UserError
from tests.data.sources.formats import idx_bytes, random_images, settings, write_mnist


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "zipped"])
def test_mnist_in_torchvision_folder_or_plain_files(tmp_path: Path, zipped: bool) -> None:
    for number, place in enumerate(("MNIST/raw", "", "mnist")):
        folder, where = tmp_path / str(number), f"folder {place!r}"
        arrays = write_mnist(folder / place, zipped=zipped)
        source = load_source(settings(folder, "mnist"))
        assert (source.x_train == arrays["train-images-idx3-ubyte"]).all(), where
        assert source.y_train.tolist() == arrays["train-labels-idx1-ubyte"].tolist(), where
        assert (source.x_test == arrays["t10k-images-idx3-ubyte"]).all(), where
        assert source.y_test is not None, where
        assert source.y_test.tolist() == arrays["t10k-labels-idx1-ubyte"].tolist(), where
        assert source.class_names == list("0123456789"), where
        assert not source.augments, where


def test_idx_file_names_with_a_dot(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    for path in list(tmp_path.iterdir()):
        path.rename(tmp_path / path.name.replace("-idx", ".idx"))
    assert len(load_source(settings(tmp_path, "mnist")).x_train) == 30


def test_fashion_mnist_folder_and_class_names(tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST/raw", train=40)
    write_mnist(tmp_path / "FashionMNIST/raw", train=30, zipped=True)
    source = load_source(settings(tmp_path, "fashion_mnist"))
    assert len(source.x_train) == 30
    assert source.class_names[9] == "Ankle boot"


def test_idx_arrays_equal_torchvisions(tmp_path: Path) -> None:
    from torchvision.datasets import MNIST

    write_mnist(tmp_path / "MNIST/raw")
    source = load_source(settings(tmp_path, "mnist"))
    for train, images, labels in ((True, source.x_train, source.y_train), (False, source.x_test, source.y_test)):
        theirs = MNIST(str(tmp_path), train=train)
        assert (theirs.data.numpy() == images).all()
        assert theirs.targets.tolist() == labels.tolist()


def test_missing_idx_files_are_named_with_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_source(settings(tmp_path, "mnist"))
    sentence = str(caught.value)
    assert "train-images-idx3-ubyte" in sentence
    assert str(tmp_path / "MNIST/raw") in sentence
    assert "download: true" in sentence
    assert "\n" not in sentence


def test_single_missing_idx_file_is_named(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(UserError, match="needs t10k-labels-idx1-ubyte, which"):
        load_source(settings(tmp_path, "mnist"))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not an idx file"),
        (b"<html>404</html>", "is not an idx file"),
        (b"\0\0\x08\x03\0\0", "it ends inside its header"),
        (idx_bytes(random_images(30, 28, 28))[:-5], "announces 23520 bytes but it has 23515"),
        (idx_bytes(random_images(30)), "has 1 axes of type 8 instead of 3"),
        (idx_bytes(random_images(29, 28, 28)), "y_train has 30 entries but x_train has 29"),
    ],
    ids=["empty", "another file", "a cut header", "cut off", "labels for images", "an image too few"],
)
def test_damaged_idx_file_raises(tmp_path: Path, content: bytes, sentence: str) -> None:
    write_mnist(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        load_source(settings(tmp_path, "mnist"))


def test_truncated_idx_archive_raises(tmp_path: Path) -> None:
    write_mnist(tmp_path, zipped=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte.gz' is damaged"):
        load_source(settings(tmp_path, "mnist"))
    path.write_bytes(b"not gzip")
    with pytest.raises(UserError, match="damaged"):
        load_source(settings(tmp_path, "mnist"))


def test_idx_labels_above_nine_raise(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    path.write_bytes(gzip.compress(idx_bytes(np.full(30, 17, np.uint8))))
    with pytest.raises(UserError, match="class_names has 10 names but y_train holds class 17"):
        load_source(settings(tmp_path, "mnist"))


def test_thousand_clients_need_only_the_memory_of_the_data(tmp_path: Path) -> None:
    from mrtf_fedml.config import RunSettings, TrainSettings
    from mrtf_fedml.data import load

    write_mnist(tmp_path, train=20_000, test=100)
    data = settings(tmp_path, "mnist", partition_method="dirichlet", partition_alpha=0.1)
    tracemalloc.start()
    try:
        dataset = load(RunSettings(data=data, train=TrainSettings(client_num_in_total=1000)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert dataset.client_num == 1000
    as_floats = 20_000 * 784 * 4
    # The floats are torch's view of NumPy's memory, the bytes those of the file; the rest is indices.
    assert peak < 1.6 * as_floats
