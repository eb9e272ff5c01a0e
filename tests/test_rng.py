"""Generators depend on the seed and names only; the global random state is unchanged."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mrtf_fedml.rng import derive_seed, fork_rng, numpy_generator, torch_generator


def test_fork_rng_is_determined_by_names_and_restores_global_state() -> None:
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    with fork_rng(1, "dropout", 3):
        drawn = torch.rand(4)
        with fork_rng(1, "inside"):
            torch.rand(9)
        after_inner_fork = torch.rand(4)
    assert torch.equal(torch.rand(4), expected)
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(1, "dropout", 3))
        assert torch.equal(torch.rand(4), drawn)
        assert torch.equal(torch.rand(4), after_inner_fork)


def test_fork_rng_restores_state_after_error() -> None:
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    with pytest.raises(RuntimeError, match="size"), fork_rng(0, "x"):
        torch.rand(1).view(2)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_generators_depend_on_seed_and_names_only() -> None:
    first, second = (torch.rand(3, generator=torch_generator(2, "batches", 1)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, torch.rand(3, generator=torch_generator(2, "batches", 2)))
    assert np.array_equal(numpy_generator(2, "a").random(3), numpy_generator(2, "a").random(3))
    assert derive_seed(0, "1") != derive_seed(0, 1), "a string differs from the equal number"
