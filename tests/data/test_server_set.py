"""Whatever a FedML dataset has for test_global, read once and in order."""

from __future__ import annotations

import random
from collections.abc import Iterator
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

from mrtf_fedml.data.server_set import read_server_set
from mrtf_fedml.errors import UserError

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
def test_every_kind_of_test_global_is_read_whole_and_in_order(source: Any) -> None:
    server = read_server_set(source)
    assert torch.equal(server.inputs, INPUTS)
    assert server.labels is not None
    assert server.labels.dtype == torch.int64
    assert torch.equal(server.labels, LABELS)


def test_the_batch_size_is_kept() -> None:
    assert read_server_set(DataLoader(DATA, batch_size=4)).batch_size == 4
    assert read_server_set(list(DataLoader(DATA, batch_size=5))).batch_size == 5


def test_a_subset_sampler_chooses_but_does_not_order() -> None:
    server = read_server_set(DataLoader(DATA, batch_size=2, sampler=SubsetRandomSampler([7, 2, 5])))
    assert torch.equal(server.inputs, INPUTS[[2, 5, 7]])


def test_the_users_collate_function_is_used() -> None:
    server = read_server_set(DataLoader(DATA, batch_size=4, shuffle=True, collate_fn=collate))
    assert torch.equal(server.inputs, INPUTS * 10)


def test_each_sample_is_read_once_without_workers() -> None:
    data = Counted()
    read_server_set(DataLoader(data, batch_size=4, shuffle=True, num_workers=2))
    assert data.reads == list(range(6))


def test_random_transforms_give_the_same_inputs_and_leave_the_global_state() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = read_server_set(DataLoader(Noisy(), batch_size=2, shuffle=True)).inputs
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(first, read_server_set(DataLoader(Noisy(), batch_size=2)).inputs)


def test_other_global_states_are_untouched() -> None:
    random.seed(0)
    np.random.seed(0)
    before = random.getstate(), np.random.get_state()[1].tolist()
    read_server_set(DataLoader(DATA, batch_size=4, shuffle=True))
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
def test_no_labels(source: Any) -> None:
    server = read_server_set(source)
    assert server.labels is None
    assert torch.equal(server.inputs, INPUTS)


@pytest.mark.parametrize("labels", [torch.zeros(11, 5), torch.full((11,), 0.5)], ids=["rows", "halves"])
def test_labels_that_are_no_classes_are_not_scored(labels: torch.Tensor, caplog: pytest.LogCaptureFixture) -> None:
    assert read_server_set([(INPUTS, labels)]).labels is None
    assert "not one class a sample" in caplog.text


def test_a_class_at_each_position_makes_a_label_a_row() -> None:
    labels = torch.arange(22).reshape(11, 2) % 3
    server = read_server_set([(INPUTS[:4], labels[:4]), (INPUTS[4:], labels[4:])])
    assert server.labels is not None
    assert torch.equal(server.labels, labels.flatten())


def test_yes_and_no_are_two_classes() -> None:
    labels = read_server_set([(INPUTS, LABELS > 0)]).labels
    assert labels is not None
    assert torch.equal(labels, (LABELS > 0).long())


def test_integer_inputs_stay_integers() -> None:
    assert read_server_set([(torch.arange(6).reshape(2, 3), torch.zeros(2))]).inputs.dtype == torch.int64


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (None, "test_global is None, so the server has nothing to label; give it a loader"),
        ([], "test_global is empty"),
        ([(INPUTS[:0], LABELS[:0])], "test_global is empty"),
        (DataLoader(TensorDataset(INPUTS[:0]), batch_size=4), "test_global is empty"),
        (5, "test_global is a int; give a DataLoader or a list"),
        ([(INPUTS, LABELS, LABELS)], r"is a tuple and not a pair \(x, y\)"),
        ([{"x": INPUTS}], "is a dict and not a pair"),
        ([({"x": INPUTS}, LABELS)], "holds a dict that is no tensor"),
        ([(INPUTS, LABELS[:3])], "has 11 inputs but 3 labels"),
        ([(INPUTS, LABELS), (INPUTS[:, :1], LABELS)], "inputs of different shapes"),
        ([(INPUTS * float("nan"), LABELS)], "hold NaN or infinite values"),
        (DataLoader(DATA, batch_size=None), "gives single samples; give batches"),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(source: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        read_server_set(source)
