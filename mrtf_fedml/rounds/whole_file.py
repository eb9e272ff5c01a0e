"""Files that are there whole or not at all, whenever a process is killed, a disk fills or a machine loses its power."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import FolderUnwritable


@contextmanager
def writable(place: Path) -> Iterator[None]:
    """Within the block a file is written; where it cannot be, one sentence says so."""
    try:
        yield
    except OSError as error:
        raise FolderUnwritable(
            f"{str(place)!r} cannot be written ({error.strerror or error}); make room on its disk, or make its folder "
            "writable"
        ) from error


def written_beside(place: Path, content: bytes) -> Path:
    """The content on the disk, beside its place; move it there when all is ready for it."""
    beside = place.with_name(f".{place.name}.part")
    with writable(place):
        try:
            with beside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            # Half a file would keep the room that others need.
            with suppress(OSError):
                beside.unlink()
            raise
    return beside


def replace_file(place: Path, content: bytes) -> None:
    """Put the content in its place: a reader finds the old file or the new one, never half of one."""
    beside = written_beside(place, content)
    with writable(place):
        beside.replace(place)


def append_line(place: Path, line: str) -> None:
    """Add a line, which is on the disk when this returns; where there is no room for all of it, none of it is left."""
    with writable(place):
        new = not place.exists()
        size = 0 if new else place.stat().st_size
        try:
            with place.open("a") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                os.truncate(place, size)
            raise
        if new:
            sync_folder(place.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk: a file that is synced may still lose its name."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
