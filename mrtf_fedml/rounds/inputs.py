"""The user's files that a run reads: known by their names, sizes and times, so that a resume notices others."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..settings import DataSettings

_log = logging.getLogger(__name__)

#: The file of a run's folder that keeps the stamps.
INPUTS = "state/inputs.json"
#: The entry of it that counts the server's samples; no file has such a name.
SAMPLES = "/"


def file_stamps(data: DataSettings) -> dict[str, Any]:
    """A stamp per file or folder of the user's data; `{rank}` is the server's."""
    names = (data.data_file, data.server_file, data.own_data_file)
    return {name: stamp_of(Path(name.replace("{rank}", "0")).expanduser()) for name in names if name}


def stamp_of(path: Path) -> Any:
    """Size and time of a file, or of everything in a folder; None where there is nothing."""
    if path.is_dir():
        entries = sorted(entry for entry in path.rglob("*") if entry.is_file())
        lines = [f"{entry.relative_to(path)}\0{stamp_of(entry)}" for entry in entries]
        return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:16]
    if not path.is_file():
        return None
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def refuse_another_set(before: dict[str, Any], samples: int) -> None:
    """What the run remembers belongs to its samples, one by one; a set of another size has no share in it."""
    known = before.get(SAMPLES, samples)
    if known != samples:
        raise UserError(
            f"the server's set has {samples} samples, but had {known} when the run began; leave server_samples and the "
            "server's files as they were, or label more samples by `mrtf predict`"
        )


def warn_of_changes(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Name the files that are not what they were when the run began; a file of another name is a setting's change."""
    for name, stamp in now.items():
        if name in before and before[name] != stamp:
            _log.warning(
                "%s has changed since the run began (its size or time is another): the rounds before have seen other "
                "data than those to come",
                name,
            )
