"""MNIST-M in its usual layouts."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mrtf_fedml.data import load_source
from mrtf_fedml.errors import UserError
from tests.data.sources.formats import idx_bytes, random_images, settings, write_image, write_mnist

TRAIN, TEST = random_images(20, 28, 28, 3, seed=1), random_images(10, 28, 28, 3, seed=2)
LABELS = {"train": [number % 10 for number in range(20)], "test": [9 - number for number in range(10)]}


def check(folder: Path) -> None:
    source = load_source(settings(folder, "mnistm"))
    assert (source.x_train == TRAIN).all()
    assert (source.x_test == TEST).all()
    assert source.y_train.tolist() == LABELS["train"]
    assert source.y_test is not None
    assert source.y_test.tolist() == LABELS["test"]
    assert source.class_num == 10
    assert not source.augments


def write_folders(folder: Path, inside: bool = False) -> None:
    for part, images in (("train", TRAIN), ("test", TEST)):
        names = [f"{number:08d}.png" for number in range(len(images))]
        for name, image in zip(names, images, strict=True):
            write_image(folder / f"mnist_m_{part}" / name, image)
        lines = [f"{name} {label}\n" for name, label in zip(names, LABELS[part], strict=True)]
        place = folder / f"mnist_m_{part}" if inside else folder
        (place / f"mnist_m_{part}_labels.txt").write_text("".join(lines))


@pytest.mark.parametrize("inside", [False, True], ids=["labels next to the image folder", "labels inside it"])
def test_mnistm_image_folders_with_label_files(tmp_path: Path, inside: bool) -> None:
    for number, place in enumerate(("mnist_m", "MNIST-M", "")):
        write_folders(tmp_path / str(number) / place, inside)
        check(tmp_path / str(number))


def test_mnistm_image_folders_with_one_folder_per_digit(tmp_path: Path) -> None:
    for part, word, images in (("train", "training", TRAIN), ("test", "testing", TEST)):
        for number, image in enumerate(images):
            write_image(tmp_path / "MNIST-M" / word / str(LABELS[part][number]) / f"{number:05d}.png", image)
    source = load_source(settings(tmp_path, "mnistm"))
    order = np.argsort(LABELS["train"], kind="stable")
    assert (source.x_train == TRAIN[order]).all()
    assert source.y_train.tolist() == sorted(LABELS["train"])


@pytest.mark.parametrize(
    "content",
    [
        {"train": TRAIN, "test": TEST, "train_labels": LABELS["train"], "test_labels": LABELS["test"]},
        {"x_train": TRAIN, "y_train": LABELS["train"], "x_test": TEST, "y_test": LABELS["test"]},
        {b"train": (TRAIN, np.array(LABELS["train"])), b"test": (TEST, np.array(LABELS["test"]))},
        {"train": {"images": TRAIN, "labels": np.eye(10)[LABELS["train"]]}, "test": {"x": TEST, "y": LABELS["test"]}},
        {"train": TRAIN / 255.0, "test": TEST / 255.0, "y_train": LABELS["train"], "y_test": LABELS["test"]},
    ],
)
def test_mnistm_pickles_with_labels(tmp_path: Path, content: dict[Any, Any]) -> None:
    (tmp_path / "mnistm_data.pkl").write_bytes(pickle.dumps(content, 2))
    check(tmp_path)


def test_mnistm_pickle_without_labels_uses_mnist_labels(tmp_path: Path) -> None:
    (tmp_path / "MNIST-M/raw").mkdir(parents=True)
    content = {b"train": TRAIN, b"test": TEST, b"valid": TEST}
    (tmp_path / "MNIST-M/raw/keras_mnistm.pkl.gz").write_bytes(gzip.compress(pickle.dumps(content, 2)))
    with pytest.raises(UserError, match=r"has no labels.*train-labels-idx1-ubyte"):
        load_source(settings(tmp_path, "mnistm"))
    write_mnist(tmp_path / "MNIST/raw", train=20, test=10)
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.array(LABELS["test"], np.uint8)))
    check(tmp_path)


def test_mnistm_pickle_without_first_5000_samples(tmp_path: Path) -> None:
    (tmp_path / "mnistm.pkl").write_bytes(pickle.dumps({"train": TRAIN, "test": TEST}))
    write_mnist(tmp_path / "MNIST/raw", train=5020, test=10)
    labels = np.r_[np.full(5000, 3), LABELS["train"]].astype(np.uint8)
    (tmp_path / "MNIST/raw/train-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.array(LABELS["test"], np.uint8)))
    check(tmp_path)
    write_mnist(tmp_path / "MNIST/raw", train=33, test=10)
    with pytest.raises(UserError, match="no labels and 20 samples where MNIST's train has 33"):
        load_source(settings(tmp_path, "mnistm"))


def test_mnistm_torch_and_npz_files(tmp_path: Path) -> None:
    place = tmp_path / "mnist_m/processed"
    place.mkdir(parents=True)
    for part, images in (("train", TRAIN), ("test", TEST)):
        torch.save((torch.from_numpy(images), torch.tensor(LABELS[part])), place / f"mnist_m_{part}.pt")
    check(tmp_path)
    (place / "mnist_m_test.pt").write_bytes(b"no")
    with pytest.raises(UserError, match=r"mnist_m_test.pt' is damaged"):
        load_source(settings(tmp_path, "mnistm"))
    other = tmp_path / "other"
    other.mkdir()
    arrays = {"x_train": TRAIN, "y_train": LABELS["train"], "x_test": TEST, "y_test": LABELS["test"]}
    np.savez(other / "mnistm.npz", **arrays)
    check(other)


def test_missing_mnistm_files_raise(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mnistm is not in .* put mnist_m_train, .* or keras_mnistm.pkl, into"):
        load_source(settings(tmp_path, "mnistm", download=True))
    write_folders(tmp_path / "mnist_m")
    (tmp_path / "mnist_m/mnist_m_train/00000003.png").unlink()
    with pytest.raises(UserError, match=r"00000003.png', named in mnist_m_train_labels.txt"):
        load_source(settings(tmp_path, "mnistm"))
    (tmp_path / "mnist_m/mnist_m_train_labels.txt").write_text("00000001.png\n")
    with pytest.raises(UserError, match=r"line 1 is '00000001.png' and not a file name"):
        load_source(settings(tmp_path, "mnistm"))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([1], "holds no mapping"),
        ({"test": TEST}, r"has no images under 'train' \(it holds test\)"),
        ({"train": TRAIN[0], "test": TEST}, "are uint8 of shape"),
    ],
)
def test_invalid_mnistm_pickle_raises(tmp_path: Path, content: Any, sentence: str) -> None:
    (tmp_path / "mnistm.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(UserError, match=sentence):
        load_source(settings(tmp_path, "mnistm"))
