"""Random number generators: one per purpose, derived from one seed and the names of the purpose.

No function here or elsewhere reads or writes the global random state, except inside `fork_rng`, which restores it. A
draw depends on the seed and the names only, not on the process or on earlier draws. This is why every backend gives the
same bytes. The names are part of the contract: changing one changes the results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

Name = str | int


def derive_seed(seed: int, *names: Name) -> int:
    """A 63-bit seed for the purpose described by `names`.

    >>> derive_seed(0, "client", 3, "round", 1) == derive_seed(0, "client", 3, "round", 1)
    True
    >>> derive_seed(0, "client", 31) == derive_seed(0, "client", 3, 1)
    False
    """
    text = "\x1f".join([str(int(seed)), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def torch_generator(seed: int, *names: Name) -> torch.Generator:
    """A CPU generator for the purpose described by `names`."""
    return torch.Generator().manual_seed(derive_seed(seed, *names))


def numpy_generator(seed: int, *names: Name) -> np.random.Generator:
    """A NumPy generator for the purpose described by `names`."""
    return np.random.default_rng(derive_seed(seed, *names))


@contextmanager
def fork_rng(seed: int, *names: Name) -> Iterator[None]:
    """Seed PyTorch's global random state for the block and restore it afterwards.

    For code that draws from the global state: dropout, the initial weights of a layer, a user's shuffling DataLoader.
    """
    # Not torch.manual_seed: while CUDA is not initialized, it formats a traceback at every call.
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():
        generators += torch.cuda.default_generators
    states = [generator.get_state() for generator in generators]
    try:
        for generator in generators:
            generator.manual_seed(derive_seed(seed, *names))
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
