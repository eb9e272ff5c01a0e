"""Flips and crops of batches."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mrtf_fedml.data import TensorShard, load
from mrtf_fedml.data.augmentation import BLACK, PADDING, augmented
from mrtf_fedml.settings import RunSettings, TrainSettings
from tests.data.sources.formats import settings, write_cifar10, write_svhn


def images(number: int = 200) -> torch.Tensor:
    return torch.rand(number, 3, 8, 10, generator=torch.Generator().manual_seed(0))


def test_each_is_a_shifted_and_perhaps_mirrored_copy() -> None:
    given = images()
    made = augmented(given, torch.Generator().manual_seed(1))
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


def test_draws_are_the_generators_and_the_images_stay() -> None:
    given = images(20)
    before = given.clone()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = augmented(given, torch.Generator().manual_seed(1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(given, before)
    assert torch.equal(first, augmented(given, torch.Generator().manual_seed(1)))
    assert not torch.equal(first, augmented(given, torch.Generator().manual_seed(2)))


def test_a_shard_augments_its_training_batches_alone() -> None:
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
def test_cifar_is_augmented_unless_it_is_switched_off(tmp_path: Path, choice: str, expected: bool) -> None:
    write_cifar10(tmp_path)
    data = settings(tmp_path, "cifar10", augmentation=choice)
    dataset = load(RunSettings(data=data, train=TrainSettings(client_num_in_total=5)))
    assert {shard.augments for shard in dataset[5].values()} == {expected}
    assert torch.equal(torch.cat([x for x, _ in dataset[3]]), dataset.server_inputs)


def test_digits_are_never_mirrored(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    dataset = load(RunSettings(data=settings(tmp_path, "svhn"), train=TrainSettings(client_num_in_total=5)))
    assert not any(shard.augments for shard in dataset[5].values())
