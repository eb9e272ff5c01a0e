"""Randomness has an owner: one generator per purpose, derived from one seed and the names of what it serves.

No function here or elsewhere reads or writes the global random state, except inside `forked`, which puts it
back. A draw thus depends on the seed and on its names alone: not on the process that makes it, nor on what was
drawn before, which is what makes every backend give the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

Name = str | int


def derived_seed(seed: int, *names: Name) -> int:
    """A 63-bit seed for the purpose that `names` spell.

    >>> derived_seed(0, "client", 3, "round", 1) == derived_seed(0, "client", 3, "round", 1)
    True
    >>> derived_seed(0, "client", 31) == derived_seed(0, "client", 3, 1)
    False
    """
    text = "\x1f".join([str(int(seed)), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def torch_generator(seed: int, *names: Name) -> torch.Generator:
    """A CPU generator for the purpose that `names` spell."""
    return torch.Generator().manual_seed(derived_seed(seed, *names))


def numpy_generator(seed: int, *names: Name) -> np.random.Generator:
    """A NumPy generator for the purpose that `names` spell."""
    return np.random.default_rng(derived_seed(seed, *names))


@contextmanager
def forked(seed: int, *names: Name) -> Iterator[None]:
    """Seed PyTorch's global state for the block and put it back after it.

    For what draws from the global state whether one likes it or not: dropout, the initial weights of a layer,
    a user's shuffling DataLoader.
    """
    # Not torch.manual_seed: while CUDA is not in use, that formats a traceback at every call.
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():
        generators += torch.cuda.default_generators
    states = [generator.get_state() for generator in generators]
    try:
        for generator in generators:
            generator.manual_seed(derived_seed(seed, *names))
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
