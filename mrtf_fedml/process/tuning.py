"""Settings of the process that affect speed or avoid crashes: memory allocator, garbage collector, CPU instructions."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: glibc's numbers for mallopt, from <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: Blocks up to this size come from the heap and stay there; glibc allows no more. Larger ones are returned at once.
_MAX_HEAP_BLOCK = 32 * 2**20
#: Free memory at the end of the heap that is kept.
_KEPT_BYTES = 128 * 2**20
#: If the user has set one of these, the allocator is not changed.
_USER_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")

_CPUINFO = Path("/proc/cpuinfo")
#: The first processor's lines fit in this many characters.
_CPUINFO_CHARACTERS = 16384
#: The CPUID leaf that describes AMX tiles.
_AMX_TILE_LEAF = 0x1D
#: oneDNN's best instruction set without AMX.
_ISA_WITHOUT_AMX = "AVX512_CORE_FP16"


def keep_freed_memory() -> bool:
    """Let glibc keep up to 128 MB of freed memory; returns whether it was done. Only for our own processes.

    A training step allocates and frees feature maps of some megabytes, and each client update is a new copy of the
    model. If the memory is returned to the system, each page is cleared and faulted in again, which took a tenth of a
    step and nine tenths of a copy (docs/lab/speed.md). Other C libraries are not changed.
    """
    if any(variable in os.environ for variable in _USER_VARIABLES):
        return False
    try:
        library = ctypes.CDLL(None)
        if not hasattr(library, "gnu_get_libc_version"):
            return False
        mallopt = library.mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MAX_HEAP_BLOCK) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))


@contextmanager
def pause_garbage_collector() -> Iterator[None]:
    """Pause the garbage collector during imports, and exclude the imported objects from later collections.

    The imports of FedML and PyTorch make a million objects that all stay; collecting them takes a third of the import.
    Only for our own processes: every object that exists at the end of the block is excluded. If the block imports
    nothing, no object is.
    """
    was_enabled, modules = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > modules:
            gc.freeze()
            # Libraries complain about objects that outlive the interpreter, so they are collected at exit.
            atexit.register(gc.unfreeze)
        if was_enabled:
            gc.enable()


def has_fast_bf16() -> bool:
    """Whether this machine multiplies in bfloat16 natively and faster than in float32.

    Without usable AMX, processors that have it take twice float32's time (docs/lab/speed.md), so they do not count;
    emulated bfloat16 is many times slower.
    """
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    if amx_is_unusable():
        return False
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported", "_is_arm_bf16_supported")
    return any(bool(getattr(torch.cpu, name)()) for name in checks if hasattr(torch.cpu, name))


def disable_unusable_amx() -> None:
    """Let oneDNN not use AMX if it is unusable, unless the user has chosen an instruction set.

    Call it before the first matrix product. Some virtual machines list AMX among the processor's flags but hide the
    CPUID leaf 0x1d with the size of its tiles. oneDNN, which PyTorch uses for products in bfloat16, then configures
    tiles of size zero, and the first product ends the process with "Illegal instruction".
    """
    if amx_is_unusable():
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", _ISA_WITHOUT_AMX)


def amx_is_unusable() -> bool:
    """Whether this machine lists AMX but hides the size of its tiles."""
    try:
        with _CPUINFO.open() as file:
            return cpuinfo_hides_amx_tiles(file.read(_CPUINFO_CHARACTERS))
    except (OSError, UnicodeDecodeError):
        return False


def cpuinfo_hides_amx_tiles(cpuinfo: str) -> bool:
    """The same, for the text of /proc/cpuinfo."""
    values: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        values.setdefault(name.strip(), value.strip())
    level = values.get("cpuid level", "")
    return "amx_tile" in values.get("flags", "").split() and level.isdecimal() and int(level) < _AMX_TILE_LEAF
