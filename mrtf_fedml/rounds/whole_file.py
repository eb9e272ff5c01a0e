"""Files that are there whole or not at all, whenever a process is killed or a machine loses its power."""

from __future__ import annotations

import os
from pathlib import Path


def written_beside(place: Path, content: bytes) -> Path:
    """The content on the disk, beside its place; move it there when all is ready for it."""
    beside = place.with_name(f".{place.name}.part")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return beside


def replace_file(place: Path, content: bytes) -> None:
    """Put the content in its place: a reader finds the old file or the new one, never half of one."""
    written_beside(place, content).replace(place)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk: a file that is synced may still lose its name."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
