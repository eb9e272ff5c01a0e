from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from mrtf_fedml.data.shards import TensorShard, UnlabelledSet


def shard(samples: int, batch_size: int) -> TensorShard:
    """The even rows of twice as many."""
    inputs = torch.arange(4.0 * samples).reshape(2 * samples, 2)
    return TensorShard(inputs, torch.arange(2 * samples), np.arange(0, 2 * samples, 2), batch_size)


def test_batches_and_the_last_batch_of_one() -> None:
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


def test_iterates_in_order_again_and_again_as_a_loader_does() -> None:
    own = shard(6, 4)
    loader = DataLoader(TensorDataset(own.inputs[::2], own.labels), batch_size=4)
    for _ in range(2):
        for (x, y), (expected_x, expected_y) in zip(own, loader, strict=True):
            assert torch.equal(x, expected_x)
            assert torch.equal(y, expected_y)


def test_shuffling_permutes_the_pairs_and_owes_all_to_its_generator() -> None:
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


def test_one_generator_serves_two_passes_differently_even_before_they_are_read() -> None:
    own, generator = shard(50, 8), torch.Generator().manual_seed(0)
    passes = [own.shuffled_batches(generator), own.shuffled_batches(generator)]
    second, first = (torch.cat([y for _, y in batches]) for batches in reversed(passes))
    generator.manual_seed(0)
    assert torch.equal(first, torch.cat([y for _, y in own.shuffled_batches(generator)]))
    assert not torch.equal(first, second)


def test_a_batch_is_a_copy() -> None:
    own = shard(4, 2)
    next(iter(own))[0].zero_()
    assert own.inputs[2].tolist() == [4, 5]


def test_the_unlabelled_set_gives_its_inputs_in_order_and_no_label() -> None:
    inputs = torch.arange(10.0).reshape(5, 2)
    given = UnlabelledSet(inputs, 2)
    assert torch.equal(torch.cat([x for x, _ in given]), inputs)
    labels = torch.cat([y for _, y in given])
    assert labels.dtype == torch.int64
    assert labels.tolist() == [-1] * 5


def test_batches_that_are_copied_out_together_begin_where_their_own_copies_would() -> None:
    # 16 numbers are 64 bytes: batches of three are copied together. 5 numbers are not: each is copied alone.
    for width in (16, 5):
        inputs, rows = torch.randn(40, width), np.arange(39, 0, -3)
        batches = list(TensorShard(inputs, torch.arange(40), rows, batch_size=3))
        assert [len(labels) for _, labels in batches] == [3, 3, 3, 4]
        assert torch.equal(torch.cat([batch for batch, _ in batches]), inputs[torch.as_tensor(rows)])
        assert all(batch.data_ptr() % 64 == 0 and batch.is_contiguous() for batch, _ in batches)
        owners = {batch.untyped_storage().data_ptr() for batch, _ in batches}
        assert len(owners) == (1 if width == 16 else 4)
