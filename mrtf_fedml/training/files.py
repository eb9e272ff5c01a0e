"""Atomic writes: after a kill, a full disk or a power cut a file is complete or absent, never half written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import WriteError


def atomic_write(path: Path, content: bytes) -> None:
    """Write or replace a file. A reader finds the old file or the new one."""
    temporary = write_temporary(path, content)
    with report_write_errors(path):
        temporary.replace(path)


def write_temporary(path: Path, content: bytes) -> Path:
    """Write the content, synced to disk, to a temporary file in the folder of `path`; rename it to publish it."""
    temporary = path.with_name(f".{path.name}.part")
    with report_write_errors(path):
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            # An incomplete file would take disk space that is needed elsewhere.
            with suppress(OSError):
                temporary.unlink()
            raise
    return temporary


def append_line(path: Path, line: str) -> None:
    """Append a line and sync it to disk. If the disk has no room for the whole line, none of it is written."""
    with report_write_errors(path):
        is_new = not path.exists()
        size = 0 if is_new else path.stat().st_size
        try:
            with path.open("a") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                os.truncate(path, size)
            raise
        if is_new:
            sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk: a synced file may still lose its name in a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def report_write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a WriteError that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        raise WriteError(
            f"{str(path)!r} cannot be written ({error.strerror or error}); free space on its disk, or make its folder "
            "writable"
        ) from error
