"""The cache of features on this machine: one file per set of samples, named by a hash."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

_log = logging.getLogger(__name__)

#: Bytes of all files together; the files that were used longest ago are removed first.
MAX_BYTES = 4_000_000_000
_NAME = "features"


def cache_folder() -> Path:
    """The folder of the cache: `$XDG_CACHE_HOME/mrtf_fedml/features`, by default under ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mrtf_fedml" / "features"


def cached_features(key: str, compute: Callable[[], Tensor]) -> Tensor:
    """The features [N, D] stored under `key`; if there are none, computed and stored.

    Processes that need the same features wait for the first of them. A folder that cannot be written is no error.
    """
    file = cache_folder() / f"{key}.safetensors"
    if (stored := _read(file)) is not None:
        return stored
    with _lock(file):
        if (stored := _read(file)) is not None:
            return stored
        features = compute()
        _write(file, features)
        return features


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    path = file.with_suffix(".lock")
    opened = None
    # Without a lock the features are computed more than once, and are the same.
    with suppress(OSError):
        # The features come from samples that may be private.
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = path.open("w")
        fcntl.flock(opened, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if opened is not None:
            with suppress(OSError):
                path.unlink()
            opened.close()


def _read(file: Path) -> Tensor | None:
    try:
        features = load_file(file)[_NAME]
        # The time of the last use decides what is removed.
        file.touch()
    except (OSError, SafetensorError, KeyError):
        return None
    return features


def _write(file: Path, features: Tensor) -> None:
    temporary = file.with_suffix(f".{os.getpid()}")
    try:
        save_file({_NAME: features}, temporary)
        temporary.replace(file)
        _remove_oldest(file.parent, keep=file)
    except (OSError, SafetensorError) as error:
        _log.warning("the features are not cached, so that the next run encodes again: %s", error)
        with suppress(OSError):
            temporary.unlink()


def _remove_oldest(folder: Path, keep: Path) -> None:
    files = sorted(folder.glob("*.safetensors"), key=lambda file: file.stat().st_mtime)
    total = sum(file.stat().st_size for file in files)
    for file in files:
        if total <= MAX_BYTES:
            return
        if file != keep:
            total -= file.stat().st_size
            file.unlink(missing_ok=True)
