"""What the processor has for bfloat16, and what it claims to have and cannot use.

Some virtual machines show AMX among the processor's flags and hide the page (CPUID leaf 0x1d) that tells the size of
its tiles. oneDNN, by which PyTorch multiplies in bfloat16, then makes tiles of no size, and the first product ends the
process with "Illegal instruction".
"""

from __future__ import annotations

import os
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
#: The page on which a processor describes its tiles.
_TILES_PAGE = 0x1D
#: The first processor's lines fit in.
_ENOUGH = 16384
#: The best that oneDNN has without tiles.
_WITHOUT_TILES = "AVX512_CORE_FP16"


def has_bf16() -> bool:
    """Whether this machine multiplies in bfloat16 by itself, and faster than in float32.

    Processors with tiles multiply by these. Without them the same processors take twice float32's time (docs/speed.md),
    so they do not count where tiles are hidden; emulated, bfloat16 is many times slower.
    """
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    if tiles_are_half_hidden():
        return False
    named = ("_is_avx512_bf16_supported", "_is_amx_tile_supported", "_is_arm_bf16_supported")
    return any(bool(getattr(torch.cpu, name)()) for name in named if hasattr(torch.cpu, name))


def tiles_are_half_hidden() -> bool:
    """Whether this machine says that it has AMX, and does not say of what size."""
    try:
        with _CPUINFO.open() as file:
            return half_hidden(file.read(_ENOUGH))
    except (OSError, UnicodeDecodeError):
        return False


def half_hidden(cpuinfo: str) -> bool:
    """The same, of what Linux tells of a processor."""
    facts: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    pages = facts.get("cpuid level", "")
    return "amx_tile" in facts.get("flags", "").split() and pages.isdecimal() and int(pages) < _TILES_PAGE


def leave_hidden_tiles_alone() -> None:
    """Let oneDNN do without tiles that it cannot use, unless the user has set what it may use.

    To be called before its first product.
    """
    if tiles_are_half_hidden():
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", _WITHOUT_TILES)
