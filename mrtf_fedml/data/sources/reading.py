"""How files are found, and what is said of those that are not there or cannot be read."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from ...errors import UserError
from ...settings import DataSettings
from ..listing import listed
from ..names import printable
from .downloads import fetch
from .memory import Memory

#: What Python's readers raise for a file that is cut off, damaged, or of another format.
UNREADABLE = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)

#: The most letters of a library's own words that a message repeats; some repeat the file.
LONGEST = 200

#: Bytes that are unpacked at a time.
PIECE = 1 << 20

_PACKED: dict[str, Callable[[Path], IO[bytes]]] = {".gz": gzip.open, ".bz2": bz2.open}  # type: ignore[dict-item]


def cache_dir(settings: DataSettings) -> Path:
    """The folder in which the datasets known by name are kept."""
    return Path(settings.data_cache_dir).expanduser()


def find(settings: DataSettings, folders: Sequence[str], names: Sequence[str]) -> Path | None:
    """The first file of one of `names` in one of `folders`, which lie in the data's folder; None where none is."""
    for folder in folders:
        for name in names:
            path = cache_dir(settings) / folder / name
            if path.is_file():
                return path
    return None


def require(settings: DataSettings, folders: Sequence[str], wanted: Sequence[Sequence[str]]) -> list[Path]:
    """A path for each of `wanted`, itself a row of names of which any will do.

    Where one is missing it is fetched if `download` says so and torchvision knows from where; else the user
    is told which files to put where.
    """
    found = [find(settings, folders, names) for names in wanted]
    if None in found:
        reason = ""
        if settings.download:
            try:
                fetch(settings.dataset, cache_dir(settings))
            except UserError as error:
                reason = f"{error}; "
            found = [find(settings, folders, names) for names in wanted]
        missing = [names[0] for names, path in zip(wanted, found, strict=True) if path is None]
        if missing:
            raise UserError(reason + missing_sentence(settings, missing, folders))
    return [path for path in found if path is not None]


def missing_sentence(settings: DataSettings, missing: Sequence[str], folders: Sequence[str]) -> str:
    """Which files of a dataset are missing, and where they are looked for."""
    places = ", ".join(repr(str(cache_dir(settings) / folder)) for folder in folders[:3])
    more = f" and {len(folders) - 3} more" if len(folders) > 3 else ""
    return (
        f"dataset {settings.dataset} needs {listed(missing)}, which is in none of {places}{more}; put it in the first "
        "of them, or set data_args.data_cache_dir to the folder that has it"
        + ("" if settings.download else " (data_args.download: true fetches it where torchvision can)")
    )


def read_bytes(path: Path, memory: Memory) -> bytes:
    """The content of a file, unpacked where its name ends in .gz or .bz2."""
    try:
        memory.check(path.stat().st_size, f"data file {str(path)!r}")
        if path.suffix not in _PACKED:
            return path.read_bytes()
        with _PACKED[path.suffix](path) as file:
            return _unpacked(path, file, memory)
    except UserError:
        raise
    except (*UNREADABLE, MemoryError) as error:
        raise damaged(path, error) from error


def _unpacked(path: Path, file: IO[bytes], memory: Memory) -> bytes:
    # Piece by piece: what a packed file becomes is known only when it is there.
    pieces: list[bytes] = []
    size = 0
    while piece := file.read(PIECE):
        pieces.append(piece)
        size += len(piece)
        memory.check(size, f"data file {str(path)!r}, unpacked,")
    return b"".join(pieces)


def damaged(path: Path, why: BaseException | str) -> UserError:
    """The error for a file that is there and cannot be read."""
    what = why if isinstance(why, str) else first_line(why)
    return UserError(f"data file {str(path)!r} is damaged or cut off ({what}); fetch it again")


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, or its name where it says nothing."""
    lines = str(error).splitlines()
    return printable(lines[0][:LONGEST]) if lines and lines[0] else type(error).__name__
