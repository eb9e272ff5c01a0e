"""How files are found, and what is said of those that are not there or cannot be read."""

from __future__ import annotations

import bz2
import gzip
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from ...errors import UserError
from ...settings import DataSettings
from ..listing import listed
from .downloads import fetch

#: What Python's readers raise for a file that is cut off, damaged, or of another format.
UNREADABLE = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error)

_UNPACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".bz2": bz2.decompress}


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
    places = listed((repr(str(cache_dir(settings) / folder)) for folder in folders), most=3)
    return (
        f"dataset {settings.dataset} needs {listed(missing)}, which is in none of {places}; put it in the first of "
        "them, or set data_args.data_cache_dir to the folder that has it"
        + ("" if settings.download else " (data_args.download: true fetches it where torchvision can)")
    )


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked where its name ends in .gz or .bz2."""
    try:
        content = path.read_bytes()
        return _UNPACKERS[path.suffix](content) if path.suffix in _UNPACKERS else content
    except UNREADABLE as error:
        raise damaged(path, error) from error


def damaged(path: Path, why: BaseException | str) -> UserError:
    """The error for a file that is there and cannot be read."""
    what = why if isinstance(why, str) else first_line(why)
    return UserError(f"data file {str(path)!r} is damaged or cut off ({what}); fetch it again")


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, or its name where it says nothing."""
    return (str(error) or type(error).__name__).splitlines()[0]
