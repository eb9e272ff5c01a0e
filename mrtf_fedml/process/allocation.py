"""Memory that was freed is kept for the next step, where the C library would give it back to the system."""

from __future__ import annotations

import ctypes
import os

#: glibc's numbers for mallopt, from <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: Blocks up to here come from the heap, where they stay; glibc allows no more. Larger ones go back at once.
_LARGEST_ON_THE_HEAP = 32 * 2**20
#: So much free memory may lie at the heap's end before it goes back.
_KEPT = 128 * 2**20
#: A user who has set one of these knows what he wants.
_OF_THE_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Keep up to 128 MB of what steps and messages free; whether it was done. For a process that is ours.

    A step of a convolutional net makes and frees maps of some megabytes, and every client's update is a new copy of
    the model. Given back and asked for again, each of their pages is cleared by the system and found by a fault, which
    took a tenth of a step and nine tenths of a copy: docs/speed.md has the figures. Other C libraries are left alone.
    """
    if any(variable in os.environ for variable in _OF_THE_USER):
        return False
    try:
        library = ctypes.CDLL(None)
        if not hasattr(library, "gnu_get_libc_version"):
            return False
        mallopt = library.mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_ON_THE_HEAP) and mallopt(_M_TRIM_THRESHOLD, _KEPT))
