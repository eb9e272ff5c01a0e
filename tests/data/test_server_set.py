"""The server's set from `test_global`, from a source and from another dataset."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from mrtf_fedml.config import RunSettings, TrainSettings
from mrtf_fedml.data import TransductiveDataset, load, load_source
from mrtf_fedml.data.server_set import match_input_shape, read_test_global
from mrtf_fedml.errors import UserError
from tests.data.sources.formats import (
    random_images,
    settings,
    write_cifar10,
    write_cifar100_archive,
    write_femnist,
    write_image,
    write_mnist,
    write_svhn,
    write_usps,
)

INPUTS, LABELS = torch.arange(22.0).reshape(11, 2), torch.arange(11) % 3
DATA = TensorDataset(INPUTS, LABELS)


class Noisy(Dataset[tuple[torch.Tensor, int]]):
    """A dataset whose transform draws from the global state."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(2), index


class Counted(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self) -> None:
        self.reads: list[int] = []

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.reads.append(index)
        return torch.zeros(2), 0


class Streamed(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield from zip(INPUTS, LABELS, strict=True)


def collate(rows: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack([x for x, _ in rows]) * 10, torch.stack([y for _, y in rows])


@pytest.mark.parametrize(
    "source",
    [
        DataLoader(DATA, batch_size=4),
        DataLoader(DATA, batch_size=4, shuffle=True),
        DataLoader(DATA, batch_size=4, shuffle=True, drop_last=True),
        DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 4, False)),
        DataLoader(Streamed(), batch_size=4),
        list(DataLoader(DATA, batch_size=4)),
        [(INPUTS.numpy(), LABELS.numpy())],
        [[INPUTS.tolist(), LABELS.tolist()]],
        [(INPUTS, LABELS.unsqueeze(1).float())],
    ],
    ids=[
        "a loader",
        "that shuffles",
        "and drops the last",
        "by batches of a sampler",
        "of a stream",
        "a list of batches",
        "arrays",
        "lists",
        "labels in a column",
    ],
)
def test_every_kind_of_test_global_is_read_completely_and_in_order(source: Any) -> None:
    server = read_test_global(source)
    assert torch.equal(server.inputs, INPUTS)
    assert server.labels is not None
    assert server.labels.dtype == torch.int64
    assert torch.equal(server.labels, LABELS)


def test_test_global_batch_size_is_kept() -> None:
    assert read_test_global(DataLoader(DATA, batch_size=4)).batch_size == 4
    assert read_test_global(list(DataLoader(DATA, batch_size=5))).batch_size == 5


def test_subset_sampler_selects_without_reordering() -> None:
    server = read_test_global(DataLoader(DATA, batch_size=2, sampler=SubsetRandomSampler([7, 2, 5])))
    assert torch.equal(server.inputs, INPUTS[[2, 5, 7]])


def test_collate_function_is_used() -> None:
    server = read_test_global(DataLoader(DATA, batch_size=4, shuffle=True, collate_fn=collate))
    assert torch.equal(server.inputs, INPUTS * 10)


def test_each_sample_is_read_once() -> None:
    data = Counted()
    read_test_global(DataLoader(data, batch_size=4, shuffle=True, num_workers=2))
    assert data.reads == list(range(6))


def test_random_transforms_are_deterministic_and_keep_global_state() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = read_test_global(DataLoader(Noisy(), batch_size=2, shuffle=True)).inputs
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(first, read_test_global(DataLoader(Noisy(), batch_size=2)).inputs)


def test_numpy_and_python_random_states_are_kept() -> None:
    random.seed(0)
    np.random.seed(0)
    before = random.getstate(), np.random.get_state()[1].tolist()
    read_test_global(DataLoader(DATA, batch_size=4, shuffle=True))
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


@pytest.mark.parametrize(
    "source",
    [
        [(INPUTS, torch.full((11,), -1))],
        [(INPUTS, None)],
        [(INPUTS,)],
        [INPUTS],
        DataLoader(TensorDataset(INPUTS), batch_size=4),
    ],
    ids=["all -1", "None", "a tuple of one", "inputs alone", "a loader of inputs"],
)
def test_test_global_without_labels_has_none(source: Any) -> None:
    server = read_test_global(source)
    assert server.labels is None
    assert torch.equal(server.inputs, INPUTS)


@pytest.mark.parametrize("labels", [torch.zeros(11, 5), torch.full((11,), 0.5)], ids=["rows", "halves"])
def test_labels_that_are_not_classes_are_not_scored(labels: torch.Tensor, caplog: pytest.LogCaptureFixture) -> None:
    assert read_test_global([(INPUTS, labels)]).labels is None
    assert "not one class per sample" in caplog.text


def test_labels_per_position_are_flattened() -> None:
    labels = torch.arange(22).reshape(11, 2) % 3
    server = read_test_global([(INPUTS[:4], labels[:4]), (INPUTS[4:], labels[4:])])
    assert server.labels is not None
    assert torch.equal(server.labels, labels.flatten())


def test_boolean_labels_are_two_classes() -> None:
    labels = read_test_global([(INPUTS, LABELS > 0)]).labels
    assert labels is not None
    assert torch.equal(labels, (LABELS > 0).long())


def test_integer_inputs_stay_integers() -> None:
    assert read_test_global([(torch.arange(6).reshape(2, 3), torch.zeros(2))]).inputs.dtype == torch.int64


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (None, "test_global is None, so the server has nothing to label"),
        ([], "test_global is empty"),
        ([(INPUTS[:0], LABELS[:0])], "test_global is empty"),
        (DataLoader(TensorDataset(INPUTS[:0]), batch_size=4), "test_global is empty"),
        (5, "test_global is a int"),
        ([(INPUTS, LABELS, LABELS)], r"is a tuple and not a pair \(x, y\)"),
        ([{"x": INPUTS}], "is a dict and not a pair"),
        ([({"x": INPUTS}, LABELS)], "holds a dict that is not a tensor"),
        ([(INPUTS, LABELS[:3])], "has 11 inputs but 3 labels"),
        ([(INPUTS, LABELS), (INPUTS[:, :1], LABELS)], "inputs of different shapes"),
        ([(INPUTS * float("nan"), LABELS)], "hold NaN or infinite values"),
        (DataLoader(DATA, batch_size=None), "single samples"),
    ],
)
def test_invalid_test_global_raises(source: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        read_test_global(source)


def load_dataset(folder: Path, dataset: str, **keys: Any) -> TransductiveDataset:
    return load(RunSettings(data=settings(folder, dataset, **keys), train=TrainSettings(client_num_in_total=5)))


def test_usps_server_set_is_resized_to_mnist(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_usps(tmp_path)
    dataset = load_dataset(tmp_path, "mnist", server_dataset="usps")
    assert dataset[5][0].inputs.shape == (30, 1, 28, 28)
    assert dataset.server_inputs.shape == (10, 1, 28, 28)
    assert -1 <= dataset.server_inputs.min() < dataset.server_inputs.max() <= 1
    labels = load_source(settings(tmp_path, "usps")).y_test
    assert labels is not None
    assert dataset.evaluator is not None
    assert dataset.evaluator.score(torch.from_numpy(labels)) == 1.0


def test_server_set_is_converted_between_grey_and_colour(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_svhn(tmp_path)
    grey = load_dataset(tmp_path, "mnist", server_dataset="svhn")
    assert grey.server_inputs.shape == (10, 1, 28, 28)
    colour = load_dataset(tmp_path, "svhn", server_dataset="mnist")
    assert colour.server_inputs.shape == (10, 3, 32, 32)
    assert torch.equal(colour.server_inputs[:, 0], colour.server_inputs[:, 2])


def test_match_input_shape_equals_hand_computed_values() -> None:
    red = torch.stack([torch.ones(2, 2), -torch.ones(2, 2), -torch.ones(2, 2)])[None]
    grey = match_input_shape(red, (1, 4, 4), "cards")
    assert torch.allclose(grey, torch.full((1, 1, 4, 4), 2 * 0.299 - 1), atol=1e-6)
    image = torch.rand(2, 1, 5, 5)
    assert match_input_shape(image, (1, 5, 5), "same") is image


def test_image_folder_as_server_set_of_image_dataset(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    for name in ("b.png", "a.png"):
        write_image(tmp_path / "mine" / name, random_images(40, 30, 3))
    dataset = load_dataset(tmp_path, "mnist", server_dataset="images", server_file=str(tmp_path / "mine"))
    assert dataset.server_inputs.shape == (2, 1, 28, 28)
    assert dataset.ids == ["a.png", "b.png"]
    assert dataset.evaluator is None


def test_npz_file_as_server_set(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    x = random_images(12, 16, 16, 3)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=np.arange(12) % 10, x_test=x)
    dataset = load_dataset(tmp_path, "mnist", server_dataset="npz", server_file=str(tmp_path / "own.npz"))
    assert dataset.server_inputs.shape == (12, 1, 28, 28)


def test_server_dataset_equal_to_dataset_changes_nothing(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    first, second = load_dataset(tmp_path, "mnist"), load_dataset(tmp_path, "mnist", server_dataset="mnist")
    assert torch.equal(first.server_inputs, second.server_inputs)


def test_incompatible_server_dataset_raises(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    write_cifar100_archive(tmp_path)
    with pytest.raises(UserError, match="server_dataset cifar100 has 100 classes but cifar10 has 10"):
        load_dataset(tmp_path, "cifar10", server_dataset="cifar100")
    with pytest.raises(UserError, match=r"'mnits'.* did you mean 'mnist'"):
        load_dataset(tmp_path, "cifar10", server_dataset="mnits")
    with pytest.raises(UserError, match="server_dataset csv needs"):
        load_dataset(tmp_path, "cifar10", server_dataset="csv")
    np.savez(tmp_path / "rows.npz", x_train=np.ones((10, 4)), y_train=np.arange(10), x_test=np.ones((3, 4)))
    with pytest.raises(UserError, match="another kind of sample than cifar10"):
        load_dataset(tmp_path, "cifar10", server_dataset="npz", server_file=str(tmp_path / "rows.npz"))
    with pytest.raises(UserError, match=r"shape \(4,\) and a sample of the clients \(1, 8, 8\)"):
        match_input_shape(torch.zeros(2, 4), (1, 8, 8), "rows")
    with pytest.raises(UserError, match=r"server_dataset is images but rows"):
        load_dataset(
            tmp_path, "npz", data_file=str(tmp_path / "rows.npz"), server_dataset="images", partition_method="iid"
        )


def test_different_class_names_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_cifar10(tmp_path)
    write_mnist(tmp_path)
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        load_dataset(tmp_path, "mnist", server_dataset="cifar10")
    assert "name their classes differently; they are matched by number" in caplog.text


def test_clients_by_user_with_other_server_dataset(tmp_path: Path) -> None:
    write_femnist(tmp_path / "femnist")
    x = random_images(70, 28, 28)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=np.arange(70) % 62, x_test=x)
    keys = {"partition_method": "user", "dset_ratio": 0.5, "server_dataset": "npz"}
    dataset = load_dataset(tmp_path, "femnist", server_file=str(tmp_path / "own.npz"), **keys)
    assert (dataset.client_num, len(dataset.server_inputs)) == (5, 70)


def test_server_samples_are_evenly_spaced_and_keep_ids_and_labels(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_usps(tmp_path)
    rows = [0, 2, 5, 7]
    for server in ("mnist", "usps"):
        whole = load_dataset(tmp_path, "mnist", server_dataset=server)
        part = load_dataset(tmp_path, "mnist", server_dataset=server, server_samples=4)
        assert len(whole.server_inputs) == 10
        assert torch.equal(part.server_inputs, whole.server_inputs[rows])
        assert part.ids == [whole.ids[row] for row in rows]
        labels = load_source(settings(tmp_path, server)).y_test
        assert labels is not None
        assert part.evaluator is not None
        assert part.evaluator.score(torch.from_numpy(labels[rows])) == 1.0
    with pytest.raises(UserError, match="server_samples is 11 but the server's set has only 10"):
        load_dataset(tmp_path, "mnist", server_samples=11)
