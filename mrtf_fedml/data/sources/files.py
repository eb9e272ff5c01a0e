"""Finding and reading dataset files, within the memory limit `data_args.max_memory_mb`.

A few bytes can ask for any amount of memory: zeros compress a thousandfold, and a header may announce data that does
not follow. Sizes are therefore read from headers and checked before memory is allocated.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ...config import DataSettings
from ...errors import UserError
from ..formatting import escape, format_list
from .downloads import download_dataset

#: The exceptions of Python's readers for a file that is truncated, damaged, or in another format.
READ_ERRORS = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)

#: Messages repeat at most this many characters of a library's message; some contain the file.
MAX_MESSAGE = 200

#: Bytes that are decompressed at a time.
CHUNK = 1 << 20

MEGABYTE = 1_000_000

_DECOMPRESSORS: dict[str, Callable[[Path], IO[bytes]]] = {".gz": gzip.open, ".bz2": bz2.open}  # type: ignore[dict-item]


@dataclass(frozen=True)
class MemoryLimit:
    """The memory that the samples of one file or folder may use."""

    megabytes: int

    @property
    def max_bytes(self) -> int:
        """The limit in bytes."""
        return self.megabytes * MEGABYTE

    def check(self, needed: int, origin: str) -> None:
        """Raise a `UserError` if `origin` needs more than the limit, in bytes."""
        if needed > self.max_bytes:
            raise UserError(
                f"{origin} needs {math.ceil(needed / MEGABYTE)} MB of memory, more than data_args.max_memory_mb "
                f"({self.megabytes}) allows; raise it if you trust the file and the machine has enough memory"
            )

    def check_array(self, shape: Sequence[int], itemsize: int, origin: str) -> None:
        """The same for an array of this shape; items of zero bytes count as one, since each becomes an object."""
        self.check(math.prod(shape) * max(itemsize, 1), origin)


def memory_limit(settings: DataSettings) -> MemoryLimit:
    """The memory limit of the settings."""
    return MemoryLimit(settings.max_memory_mb)


def cache_dir(settings: DataSettings) -> Path:
    """The folder of the public datasets."""
    return Path(os.path.expanduser(settings.data_cache_dir))


def file_problem(path: Path) -> str:
    """Why a path is not a file that can be read. A pipe or a device is refused, since reading it may never end."""
    if not path.exists():
        return "does not exist"
    return "is a folder, not a file" if path.is_dir() else "is a pipe, a socket or a device, not a regular file"


def find_file(settings: DataSettings, folders: Sequence[str], names: Sequence[str]) -> Path | None:
    """The first file with one of `names` in one of `folders` of the cache folder; None if there is none."""
    for folder in folders:
        for name in names:
            path = cache_dir(settings) / folder / name
            if path.is_file():
                return path
    return None


def require_files(settings: DataSettings, folders: Sequence[str], wanted: Sequence[Sequence[str]]) -> list[Path]:
    """One path for each entry of `wanted`, which is a list of alternative names.

    A missing file is downloaded if `download` is set and torchvision has its address; else the error message names
    the missing files and where to put them.
    """
    paths = [find_file(settings, folders, names) for names in wanted]
    if None in paths:
        reason = ""
        if settings.download:
            try:
                download_dataset(settings.dataset, cache_dir(settings))
            except UserError as error:
                reason = f"{error}; "
            paths = [find_file(settings, folders, names) for names in wanted]
        missing = [names[0] for names, path in zip(wanted, paths, strict=True) if path is None]
        if missing:
            raise UserError(reason + missing_files_message(settings, missing, folders))
    return [path for path in paths if path is not None]


def missing_files_message(settings: DataSettings, missing: Sequence[str], folders: Sequence[str]) -> str:
    """Which files of a dataset are missing, and in which folders they are searched."""
    places = ", ".join(repr(str(cache_dir(settings) / folder)) for folder in folders[:3])
    more = f" and {len(folders) - 3} more" if len(folders) > 3 else ""
    return (
        f"dataset {settings.dataset} needs {format_list(missing)}, which is in none of {places}{more}; put it into the "
        "first of them, or set data_args.data_cache_dir to the folder that has it"
        + ("" if settings.download else " (data_args.download: true downloads it if torchvision can)")
    )


def read_bytes(path: Path, limit: MemoryLimit) -> bytes:
    """The content of a file, decompressed if its name ends in .gz or .bz2."""
    try:
        limit.check(path.stat().st_size, f"data file {str(path)!r}")
        if path.suffix not in _DECOMPRESSORS:
            return path.read_bytes()
        with _DECOMPRESSORS[path.suffix](path) as file:
            return _decompress(path, file, limit)
    except UserError:
        raise
    except (*READ_ERRORS, MemoryError) as error:
        raise damaged_file_error(path, error) from error


def _decompress(path: Path, file: IO[bytes], limit: MemoryLimit) -> bytes:
    # In chunks, since the size is known only after decompression.
    chunks: list[bytes] = []
    size = 0
    while chunk := file.read(CHUNK):
        chunks.append(chunk)
        size += len(chunk)
        limit.check(size, f"data file {str(path)!r}, unpacked,")
    return b"".join(chunks)


def damaged_file_error(path: Path, reason: BaseException | str) -> UserError:
    """The error for a file that exists and cannot be read."""
    message = reason if isinstance(reason, str) else first_line(reason)
    return UserError(f"data file {str(path)!r} is damaged or truncated ({message}); download it again")


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or the name of its type if it has none."""
    lines = str(error).splitlines()
    return escape(lines[0][:MAX_MESSAGE]) if lines and lines[0] else type(error).__name__
