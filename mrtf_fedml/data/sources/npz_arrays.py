"""Arrays out of an .npz file (NumPy's `savez`): nothing unpickled, and nothing allocated before its header is read."""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from ...errors import UserError
from ..listing import listed
from .memory import Memory
from .reading import first_line
from .source import Array

_SUFFIX = ".npy"


def read_npz(
    path: Path, origin: str, memory: Memory, needed: Sequence[str] = (), optional: Sequence[str] | None = None
) -> dict[str, Array]:
    """The arrays of these names; a `UserError` where one that is needed is not there or cannot be read.

    Other arrays of the file are not looked at; where `optional` is None, all are. `origin` is what messages call
    the file.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise UserError(
                    f"{origin} holds a single array; write one .npz file with numpy.savez(file, "
                    f"{', '.join(f'{key}=...' for key in needed)})"
                )
        archive = zipfile.ZipFile(path)
    except UserError:
        raise
    # On a damaged file zipfile raises whatever it stumbles on first, of no common kind.
    except Exception as error:
        raise UserError(
            f"{origin} cannot be read as an .npz file ({first_line(error)}); write it again with numpy.savez"
        ) from error
    with archive:
        held = Counter(name.removesuffix(_SUFFIX) for name in archive.namelist())
        for key in needed:
            if key not in held:
                raise UserError(
                    f"{origin} has no array {key!r} (it holds {listed(held) or 'none'}); "
                    f"add it with numpy.savez(file, {key}=..., ...)"
                )
        wanted = list(held) if optional is None else [key for key in (*needed, *optional) if key in held]
        twice = [key for key in wanted if held[key] > 1]
        if twice:
            raise UserError(f"{origin} has the array {listed(twice)} twice; write it again with numpy.savez")
        sizes = [_size(origin, archive, key, memory) for key in wanted]
        memory.check(sum(sizes), origin)
        return {key: _array(origin, archive, key) for key in wanted}


def _size(origin: str, archive: zipfile.ZipFile, key: str, memory: Memory) -> int:
    """The bytes that an array will take."""
    with _opened(origin, archive, key) as file:
        shape, kind = _header(file)
        memory.check_array(shape, kind.itemsize, f"{origin}: array {key!r}")
        return math.prod(shape) * kind.itemsize


def _array(origin: str, archive: zipfile.ZipFile, key: str) -> Array:
    with _opened(origin, archive, key) as file:
        array: Array = npy.read_array(file, allow_pickle=False)
        # To the end: only there is the checksum compared.
        if file.read(1):
            raise ValueError("there is more in it than its header promises")
        return array


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype, as NumPy itself reads them."""
    version = npy.read_magic(file)
    read: Any = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, kind = read(file)
    if kind.hasobject or kind.kind == "V":
        raise ValueError(f"it holds {'objects of Python' if kind.hasobject else 'records'}, which are not read")
    if any(axis < 0 for axis in shape):
        raise ValueError(f"its shape is {shape}")
    return shape, kind


@contextmanager
def _opened(origin: str, archive: zipfile.ZipFile, key: str) -> Iterator[IO[bytes]]:
    """One member of the archive; whatever is wrong with it becomes a sentence."""
    try:
        name = key + _SUFFIX
        with archive.open(name if name in archive.NameToInfo else key) as file:
            yield file
    except UserError:
        raise
    # A header is a Python literal, and a member may be packed in any way: what fails is of no common kind.
    except Exception as error:
        raise UserError(
            f"{origin}: array {key!r} cannot be read ({first_line(error)}); "
            "write plain numbers and texts, again with numpy.savez"
        ) from error
