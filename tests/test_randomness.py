"""Randomness has an owner: what is drawn depends on the seed and on names, and the global state stays as it was."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mrtf_fedml.randomness import derived_seed, forked, numpy_generator, torch_generator


def test_a_fork_draws_what_its_names_say_and_leaves_the_global_state() -> None:
    torch.manual_seed(5)
    undisturbed = torch.rand(4)
    torch.manual_seed(5)
    with forked(1, "dropout", 3):
        drawn = torch.rand(4)
        with forked(1, "inside"):
            torch.rand(9)
        after_a_fork_inside = torch.rand(4)
    assert torch.equal(torch.rand(4), undisturbed)
    with torch.random.fork_rng():
        torch.manual_seed(derived_seed(1, "dropout", 3))
        assert torch.equal(torch.rand(4), drawn)
        assert torch.equal(torch.rand(4), after_a_fork_inside)


def test_the_state_comes_back_after_an_error_too() -> None:
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    with pytest.raises(RuntimeError, match="size"), forked(0, "x"):
        torch.rand(1).view(2)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_generators_are_known_by_their_names_alone() -> None:
    first, second = (torch.rand(3, generator=torch_generator(2, "batches", 1)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, torch.rand(3, generator=torch_generator(2, "batches", 2)))
    assert np.array_equal(numpy_generator(2, "a").random(3), numpy_generator(2, "a").random(3))
    assert derived_seed(0, "1") != derived_seed(0, 1), "a text is not the number it reads like"
