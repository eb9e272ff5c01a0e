"""Heavy imports, without the garbage collector between them."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """Pause the collector for imports; what they have made is left out of its later rounds.

    FedML's and PyTorch's imports make a million objects, all of which stay, and the collector goes through them again
    and again: a third of the import. For a process that is ours: everything that lives at the end of the block is
    left out. Where the block imports nothing, nothing is.
    """
    enabled, known = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > known:
            gc.freeze()
            # At the end all must be found again: libraries complain of what outlives the interpreter.
            atexit.register(gc.unfreeze)
        if enabled:
            gc.enable()
