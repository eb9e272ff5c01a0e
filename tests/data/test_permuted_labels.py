"""For every source, the true labels affect neither the server's inputs nor their order."""

from __future__ import annotations

import bz2
import json
import pickle
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import io as matlab
from torch.utils.data import DataLoader, TensorDataset

from mrtf_fedml.config import DataSettings, RunSettings, TrainSettings
from mrtf_fedml.data import Source, TransductiveDataset, load
from tests.data.sources.formats import (
    idx_bytes,
    letters,
    random_images,
    write_cifar10,
    write_image,
    write_leaf,
    write_mnist,
    write_svhn,
    write_usps,
)

#: As many of each class before as after, for some samples the same and for most another.
BEFORE = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
AFTER = [0, 3, 1, 2, 5, 9, 4, 8, 7, 6]

Write = Callable[[Path, list[int]], dict[str, Any]]


def npz(folder: Path, labels: list[int]) -> dict[str, Any]:
    x = np.random.default_rng(0).normal(size=(30, 4))
    np.savez(folder / "own.npz", x_train=x, y_train=np.arange(30) % 10, x_test=x[:10], y_test=labels)
    return {"dataset": "npz", "data_file": str(folder / "own.npz")}


def csv(folder: Path, labels: list[int]) -> dict[str, Any]:
    (folder / "clients.csv").write_text("x,label\n" + "".join(f"{row / 10},{row % 10}\n" for row in range(30)))
    rows = "".join(f"{row / 7},{label}\n" for row, label in enumerate(labels))
    (folder / "server.csv").write_text("x,label\n" + rows)
    return {
        "dataset": "csv",
        "data_file": str(folder / "clients.csv"),
        "server_file": str(folder / "server.csv"),
    }


def _class_folders(folder: Path, labels: list[int], *shape: int, numbered: bool = False) -> None:
    """The same ten images for every labels; `numbered` names them anew in each folder."""
    count: Counter[int] = Counter()
    for number, label in enumerate(labels):
        name = f"{count[label] if numbered else number}.png"
        count[label] += 1
        write_image(folder / str(label) / name, random_images(*shape, seed=100 + number))


def images(folder: Path, labels: list[int], numbered: bool = False) -> dict[str, Any]:
    _class_folders(folder / "clients", [number % 10 for number in range(10)] * 2, 8, 6)
    _class_folders(folder / "server", labels, 8, 6, numbered=numbered)
    return {"dataset": "images", "data_file": str(folder / "clients"), "server_file": str(folder / "server")}


def numbered_images(folder: Path, labels: list[int]) -> dict[str, Any]:
    return images(folder, labels, numbered=True)


def mnist(folder: Path, labels: list[int]) -> dict[str, Any]:
    write_mnist(folder)
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.array(labels, np.uint8)))
    return {"dataset": "mnist"}


def fashion_mnist(folder: Path, labels: list[int]) -> dict[str, Any]:
    return mnist(folder, labels) | {"dataset": "fashion_mnist"}


def cifar10(folder: Path, labels: list[int]) -> dict[str, Any]:
    *_, test = write_cifar10(folder, 10)
    (folder / "cifar-10-batches-py/test_batch").write_bytes(pickle.dumps(test | {b"labels": labels}, 2))
    return {"dataset": "cifar10"}


def svhn(folder: Path, labels: list[int]) -> dict[str, Any]:
    images = write_svhn(folder)["test"].transpose(1, 2, 3, 0)
    digits = np.array([[label or 10] for label in labels], np.uint8)
    matlab.savemat(folder / "test_32x32.mat", {"X": images, "y": digits})
    return {"dataset": "svhn"}


def mnistm(folder: Path, labels: list[int]) -> dict[str, Any]:
    train, test = random_images(30, 28, 28, 3), random_images(10, 28, 28, 3, seed=1)
    content = {"train": train, "train_labels": [row % 10 for row in range(30)], "test": test, "test_labels": labels}
    (folder / "mnistm.pkl").write_bytes(pickle.dumps(content))
    return {"dataset": "mnistm"}


def mnistm_folders(folder: Path, labels: list[int]) -> dict[str, Any]:
    _class_folders(folder / "MNIST-M/training", [number % 10 for number in range(30)], 28, 28, 3)
    _class_folders(folder / "MNIST-M/testing", labels, 28, 28, 3, numbered=True)
    return {"dataset": "mnistm"}


def mnistm_list(folder: Path, labels: list[int]) -> dict[str, Any]:
    for part, classes in (("train", [number % 10 for number in range(30)]), ("test", labels)):
        for number in range(len(classes)):
            write_image(folder / f"mnist_m_{part}/{number}.png", random_images(28, 28, 3, seed=number))
        lines = "".join(f"{number}.png {label}\n" for number, label in enumerate(classes))
        (folder / f"mnist_m_{part}_labels.txt").write_text(lines)
    return {"dataset": "mnistm"}


def usps(folder: Path, labels: list[int]) -> dict[str, Any]:
    write_usps(folder)
    lines = bz2.decompress((folder / "usps.t.bz2").read_bytes()).decode().splitlines()
    changed = [f"{label + 1} {line.split(maxsplit=1)[1]}\n" for line, label in zip(lines, labels, strict=True)]
    (folder / "usps.t.bz2").write_bytes(bz2.compress("".join(changed).encode()))
    return {"dataset": "usps"}


def femnist(folder: Path, labels: list[int]) -> dict[str, Any]:
    write_leaf(folder, "train", 0, {"a": letters(15, 1), "b": letters(15, 2)})
    write_leaf(folder, "test", 0, {"a": (letters(5, 3)[0], labels[:5]), "b": (letters(5, 4)[0], labels[5:])})
    return {"dataset": "femnist"}


def shakespeare(folder: Path, labels: list[int]) -> dict[str, Any]:
    speech = "Now is the winter of our discontent Made glorious summer by this sun of York; And all the clouds "
    windows, next_letters = [speech[start : start + 80] for start in range(10)], list(speech[80:90])
    write_leaf(folder, "train", 0, {"KING": (windows, next_letters)})
    # One of the letters is none of LEAF's alphabet, and which sample it belongs to is a label too.
    true_labels = ["abcdefg\u00e9hi"[label] for label in labels]
    write_leaf(folder, "test", 0, {"KING": (windows, true_labels)})
    return {"dataset": "shakespeare"}


SOURCES: list[Write] = [
    *(npz, csv, images, numbered_images, mnist, fashion_mnist, cifar10, svhn),
    *(mnistm, mnistm_folders, mnistm_list, usps, femnist, shakespeare),
]


def load_dataset(folder: Path, **data: Any) -> TransductiveDataset:
    settings = DataSettings(**{"data_cache_dir": str(folder), "partition_method": "iid", **data})
    return load(RunSettings(data=settings, train=TrainSettings(client_num_in_total=3)))


def load_with_permuted_labels(folder: Path, write: Write, **keys: Any) -> list[TransductiveDataset]:
    datasets = []
    for labels in (BEFORE, AFTER):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        datasets.append(load_dataset(folder, **write(folder, labels), **keys))
    return datasets


def check_that_only_the_evaluator_differs(before: TransductiveDataset, after: TransductiveDataset) -> None:
    assert torch.equal(before.server_inputs, after.server_inputs)
    assert len(before.server_inputs) > 1
    assert [shard.indices.tolist() for shard in before[5].values()] == [
        shard.indices.tolist() for shard in after[5].values()
    ]
    assert before.class_names == after.class_names
    predictions = torch.arange(len(before.server_inputs)) % before.class_num
    assert before.evaluator is not None
    assert after.evaluator is not None
    assert before.evaluator.report(predictions) != after.evaluator.report(predictions)


@pytest.mark.parametrize("write", SOURCES, ids=lambda write: write.__name__)
def test_server_inputs_and_order_are_independent_of_labels(tmp_path: Path, write: Write) -> None:
    check_that_only_the_evaluator_differs(*load_with_permuted_labels(tmp_path / "data", write))


@pytest.mark.parametrize("write", [usps, svhn, mnistm_folders], ids=lambda write: write.__name__)
def test_server_dataset_inputs_are_independent_of_labels(tmp_path: Path, write: Write) -> None:
    def with_mnist(folder: Path, labels: list[int]) -> dict[str, Any]:
        write_mnist(folder)
        return {"dataset": "mnist", "server_dataset": write(folder, labels)["dataset"]}

    check_that_only_the_evaluator_differs(*load_with_permuted_labels(tmp_path / "data", with_mnist))


def test_server_image_folder_is_independent_of_labels(tmp_path: Path) -> None:
    def with_mnist(folder: Path, labels: list[int]) -> dict[str, Any]:
        write_mnist(folder)
        _class_folders(folder / "server", labels, 8, 6, numbered=True)
        return {"dataset": "mnist", "server_dataset": "images", "server_file": str(folder / "server")}

    check_that_only_the_evaluator_differs(*load_with_permuted_labels(tmp_path / "data", with_mnist))


def test_digits_server_set_is_independent_of_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn import datasets

    digits = datasets.load_digits()
    before = load_dataset(Path(), dataset="digits")
    monkeypatch.setitem(digits, "target", (digits.target + 1) % 10)
    monkeypatch.setattr(datasets, "load_digits", lambda: digits)
    check_that_only_the_evaluator_differs(before, load_dataset(Path(), dataset="digits"))


def test_loader_server_set_is_independent_of_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    y = np.arange(30) % 10
    current: dict[str, Any] = {}

    def as_source() -> Source:
        names = [str(name) for name in range(10)]
        return Source("mine", x, y, x[:10], np.array(current["labels"]), names, [str(row) for row in range(10)])

    def as_eight() -> tuple[Any, ...]:
        clients = DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=8)
        server = TensorDataset(torch.from_numpy(x[:10]), torch.tensor(current["labels"]))
        # In an order that goes by the labels, as a sampler that balances classes would have it.
        order = np.argsort(current["labels"]).tolist()
        test = DataLoader(server, batch_sampler=[order[:5], order[5:]])
        return 30, 10, clients, test, {0: 30}, {0: clients}, {0: None}, 10

    import mrtf_fedml.data.loader as loader

    for function in (as_source, as_eight):
        monkeypatch.setattr(loader, "import_object", lambda name, key, function=function: function)
        datasets = []
        for labels in (BEFORE, AFTER):
            current["labels"] = labels
            datasets.append(load_dataset(tmp_path, loader="mine:load"))
        before, after = datasets
        assert torch.equal(before.server_inputs, after.server_inputs)
        raw = load_dataset(tmp_path, loader="mine:load", standardize=False)
        assert torch.equal(raw.server_inputs, torch.from_numpy(x[:10]))
        assert before.evaluator is not None
        assert before.evaluator.score(torch.tensor(BEFORE)) == 1.0
        assert after.evaluator is not None
        assert after.evaluator.score(torch.tensor(AFTER)) == 1.0


def test_image_in_class_folder_keeps_id_and_label(tmp_path: Path) -> None:
    dataset = load_dataset(tmp_path, **images(tmp_path, AFTER))
    assert sorted(dataset.ids) == sorted(f"{label}/{number}.png" for number, label in enumerate(AFTER))
    for name, seen in zip(dataset.ids, dataset.server_inputs, strict=True):
        number = int(Path(name).stem)
        pixels = torch.from_numpy(random_images(8, 6, seed=100 + number)).float() / 127.5 - 1
        assert torch.allclose(seen[0], pixels, atol=1e-6)
    assert dataset.evaluator is not None
    assert dataset.evaluator.score(torch.tensor([int(name.split("/")[0]) for name in dataset.ids])) == 1.0


def test_folders_that_are_not_classes_do_not_order_samples(tmp_path: Path) -> None:
    """With an image next to the folders, labels are not read; the order must not reveal them either."""

    def with_extra_image(folder: Path, labels: list[int]) -> dict[str, Any]:
        keys = images(folder, labels)
        write_image(folder / "server/unsorted.png", random_images(8, 6))
        return keys

    before, after = load_with_permuted_labels(tmp_path / "data", with_extra_image)
    assert (before.evaluator, after.evaluator) == (None, None)
    assert torch.equal(before.server_inputs, after.server_inputs)


def test_flat_folder_is_sorted_by_name(tmp_path: Path) -> None:
    keys = images(tmp_path, BEFORE)
    for number in (3, 1, 2):
        write_image(tmp_path / "flat" / f"{number}.png", random_images(8, 6, seed=number))
    dataset = load_dataset(tmp_path, **{**keys, "server_file": str(tmp_path / "flat")})
    assert dataset.ids == ["1.png", "2.png", "3.png"]


def test_letter_outside_the_alphabet_is_labelled_and_not_scored(tmp_path: Path) -> None:
    dataset = load_dataset(tmp_path, **shakespeare(tmp_path, BEFORE))
    assert len(dataset.server_inputs) == 10
    assert dataset.ids[-1] == "KING:9"
    content = json.loads(next((tmp_path / "test").iterdir()).read_text())
    assert "\u00e9" in content["user_data"]["KING"]["y"]
    assert dataset.evaluator is not None
    confusion = dataset.evaluator.report(torch.zeros(10, dtype=torch.int64))["confusion"]
    assert sum(map(sum, confusion)) == 9
    # Where only such samples are left, there is nothing to mark by.
    shutil.rmtree(tmp_path / "test")
    assert load_dataset(tmp_path, **shakespeare(tmp_path, [7, *range(7), 8, 9]), server_samples=1).evaluator is None
