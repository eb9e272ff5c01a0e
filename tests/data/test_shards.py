"""Batches of shards and of the unlabelled set, and augmentation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from mrtf_fedml.config import RunSettings, TrainSettings
from mrtf_fedml.data import load
from mrtf_fedml.data.shards import BLACK, PADDING, TensorShard, UnlabelledSet, augment
from tests.data.sources.formats import settings, write_cifar10, write_svhn


def shard(samples: int, batch_size: int) -> TensorShard:
    """The even rows of twice as many."""
    inputs = torch.arange(4.0 * samples).reshape(2 * samples, 2)
    return TensorShard(inputs, torch.arange(2 * samples), np.arange(0, 2 * samples, 2), batch_size)


def test_last_batch_of_one_joins_the_previous() -> None:
    for samples, batch_size, sizes in (
        (6, 3, [3, 3]),
        (8, 3, [3, 3, 2]),
        (7, 3, [3, 4]),
        (1, 3, [1]),
        (4, 3, [4]),
        (2, 64, [2]),
        (3, 1, [1, 1, 1]),
        (3, 2, [3]),
    ):
        own, where = shard(samples, batch_size), f"{samples} samples in batches of {batch_size}"
        assert [len(y) for _, y in own] == sizes, where
        assert [len(y) for _, y in own.shuffled_batches(torch.Generator().manual_seed(0))] == sizes, where
        assert len(own) == len(sizes), where
        assert own.samples == samples, where
        unlabelled = UnlabelledSet(torch.zeros(samples, 2), batch_size)
        assert [len(x) for x, _ in unlabelled] == sizes, where
        assert (len(unlabelled), unlabelled.samples) == (len(sizes), samples), where


def test_shard_iterates_in_order_repeatedly() -> None:
    own = shard(6, 4)
    loader = DataLoader(TensorDataset(own.inputs[::2], own.labels), batch_size=4)
    for _ in range(2):
        for (x, y), (expected_x, expected_y) in zip(own, loader, strict=True):
            assert torch.equal(x, expected_x)
            assert torch.equal(y, expected_y)


def test_shuffled_batches_permute_pairs_by_the_generator() -> None:
    own = shard(50, 8)

    def order(seed: int) -> list[int]:
        batches = list(own.shuffled_batches(torch.Generator().manual_seed(seed)))
        for x, y in batches:
            assert torch.equal(x, own.inputs[y])
        return torch.cat([y for _, y in batches]).tolist()

    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = order(1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(4)
    assert order(1) == first
    assert order(2) != first
    assert sorted(first) == own.labels.tolist() == list(range(0, 100, 2))


def test_two_passes_of_one_generator_differ() -> None:
    own, generator = shard(50, 8), torch.Generator().manual_seed(0)
    passes = [own.shuffled_batches(generator), own.shuffled_batches(generator)]
    second, first = (torch.cat([y for _, y in batches]) for batches in reversed(passes))
    generator.manual_seed(0)
    assert torch.equal(first, torch.cat([y for _, y in own.shuffled_batches(generator)]))
    assert not torch.equal(first, second)


def test_batch_is_a_copy() -> None:
    own = shard(4, 2)
    next(iter(own))[0].zero_()
    assert own.inputs[2].tolist() == [4, 5]


def test_unlabelled_set_yields_inputs_in_order_without_labels() -> None:
    inputs = torch.arange(10.0).reshape(5, 2)
    given = UnlabelledSet(inputs, 2)
    assert torch.equal(torch.cat([x for x, _ in given]), inputs)
    labels = torch.cat([y for _, y in given])
    assert labels.dtype == torch.int64
    assert labels.tolist() == [-1] * 5


def test_batches_gathered_together_are_aligned() -> None:
    # 16 numbers are 64 bytes: batches of three are copied together. 5 numbers are not: each is copied alone.
    for width in (16, 5):
        inputs, rows = torch.randn(40, width), np.arange(39, 0, -3)
        batches = list(TensorShard(inputs, torch.arange(40), rows, batch_size=3))
        assert [len(labels) for _, labels in batches] == [3, 3, 3, 4]
        assert torch.equal(torch.cat([batch for batch, _ in batches]), inputs[torch.as_tensor(rows)])
        assert all(batch.data_ptr() % 64 == 0 and batch.is_contiguous() for batch, _ in batches)
        owners = {batch.untyped_storage().data_ptr() for batch, _ in batches}
        assert len(owners) == (1 if width == 16 else 4)


def images(number: int = 200) -> torch.Tensor:
    return torch.rand(number, 3, 8, 10, generator=torch.Generator().manual_seed(0))


def test_augment_returns_shifted_and_flipped_copies() -> None:
    given = images()
    made = augment(given, torch.Generator().manual_seed(1))
    assert made.shape == given.shape
    found: set[tuple[int, int, bool]] = set()
    for before, after in zip(given, made, strict=True):
        padded = torch.nn.functional.pad(before, [PADDING] * 4, value=BLACK)
        matches = {
            (row, column, mirrored)
            for row in range(2 * PADDING + 1)
            for column in range(2 * PADDING + 1)
            for mirrored in (False, True)
            if torch.equal(after.flip(-1) if mirrored else after, padded[:, row : row + 8, column : column + 10])
        }
        assert matches
        found |= matches
    assert {row for row, _, _ in found} == {column for _, column, _ in found} == set(range(9))
    assert {mirrored for _, _, mirrored in found} == {False, True}


def test_augment_draws_from_generator_and_keeps_images() -> None:
    given = images(20)
    before = given.clone()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = augment(given, torch.Generator().manual_seed(1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(given, before)
    assert torch.equal(first, augment(given, torch.Generator().manual_seed(1)))
    assert not torch.equal(first, augment(given, torch.Generator().manual_seed(2)))


def test_shard_augments_only_shuffled_batches() -> None:
    given, labels = images(10), torch.arange(10)
    shard = TensorShard(given, labels, torch.arange(10), 4, augments=True)
    assert torch.equal(torch.cat([x for x, _ in shard]), given)
    batches = list(shard.shuffled_batches(torch.Generator().manual_seed(0)))
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert sorted(y.tolist()) == list(range(10))
    assert not torch.equal(x, given[y])
    # The order is that of a shard which does not augment, and the pass owes nothing to when it is read.
    plain = TensorShard(given, labels, torch.arange(10), 4)
    order = torch.cat([labels for _, labels in plain.shuffled_batches(torch.Generator().manual_seed(0))])
    assert torch.equal(y, order)
    generator = torch.Generator().manual_seed(0)
    late = shard.shuffled_batches(generator)
    next(shard.shuffled_batches(generator))
    assert torch.equal(torch.cat([x for x, _ in late]), x)


@pytest.mark.parametrize(("choice", "expected"), [("auto", True), ("none", False)])
def test_cifar_is_augmented_unless_disabled(tmp_path: Path, choice: str, expected: bool) -> None:
    write_cifar10(tmp_path)
    data = settings(tmp_path, "cifar10", augmentation=choice)
    dataset = load(RunSettings(data=data, train=TrainSettings(client_num_in_total=5)))
    assert {shard.augments for shard in dataset[5].values()} == {expected}
    assert torch.equal(torch.cat([x for x, _ in dataset[3]]), dataset.server_inputs)


def test_digit_datasets_are_not_augmented(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    dataset = load(RunSettings(data=settings(tmp_path, "svhn"), train=TrainSettings(client_num_in_total=5)))
    assert not any(shard.augments for shard in dataset[5].values())
