"""A run inside somebody else's program: what it changes in the process is put back when it is over."""

from __future__ import annotations

import logging
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def as_guest() -> Iterator[None]:
    """Within the block FedML may seed, and silence, the whole process; afterwards all is as it was.

    Our own warnings are heard meanwhile, by the program's handlers or on stderr.
    """
    root, ours = logging.getLogger(), logging.getLogger("mrtf_fedml")
    level, own_level, threads = root.level, ours.level, torch.get_num_threads()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    if ours.level == logging.NOTSET:
        ours.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            # FedML's imports warn of their own dependencies at length.
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_num_threads(threads)
        root.setLevel(level)
        ours.setLevel(own_level)


def wants_bar(progress: bool | None) -> bool:
    """Whether a bar is shown: as was asked for; else where somebody watches, on a terminal or in a notebook."""
    if progress is not None:
        return progress
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def say_what_takes_seconds(shown: bool) -> None:
    """FedML's import is the longest silence of a first run."""
    if shown and "fedml" not in sys.modules:
        print("loading FedML ...", file=sys.stderr, flush=True)
