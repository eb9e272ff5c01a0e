"""CIFAR-10 and CIFAR-100 (A. Krizhevsky, 2009), as the pickles of the "python version"."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ...settings import DataSettings
from .arrays_by_name import row_of_numbers
from .checks import checked_source
from .memory import Memory, memory_of
from .reading import (
    cache_dir,
    damaged,
    find,
    read_bytes,
    require,
)
from .safe_pickle import load_pickle
from .source import Array, Source

PIXELS = (3, 32, 32)


@dataclass(frozen=True)
class _Edition:
    folder: str
    archive: str
    train: str
    test: str
    meta: str
    labels: str
    names: str
    classes: int


_EDITIONS = {
    "cifar10": _Edition(
        *("cifar-10-batches-py", "cifar-10-python.tar.gz", r"data_batch_\d+", "test_batch", "batches.meta"),
        *("labels", "label_names", 10),
    ),
    "cifar100": _Edition(
        *("cifar-100-python", "cifar-100-python.tar.gz", "train", "test", "meta"),
        *("fine_labels", "fine_label_names", 100),
    ),
}


def load_cifar10(settings: DataSettings) -> Source:
    """50000 and 10000 small photographs of 10 classes."""
    return _load(settings, "cifar10")


def load_cifar100(settings: DataSettings) -> Source:
    """50000 and 10000 small photographs of 100 classes, the fine ones."""
    return _load(settings, "cifar100")


def _load(settings: DataSettings, name: str) -> Source:
    edition = _EDITIONS[name]
    where, files = _files(settings, name, edition)
    train: list[tuple[Array, Array]] = []
    test: tuple[Array, Array] | None = None
    class_names: list[str] = [str(number) for number in range(edition.classes)]
    for path, read in sorted(files, key=lambda file: file[0].name):
        if re.fullmatch(edition.train, path.name):
            train.append(_batch(path, load_pickle(read(), path), edition))
        elif path.name == edition.test:
            test = _batch(path, load_pickle(read(), path), edition)
        elif path.name == edition.meta:
            class_names = _class_names(path, load_pickle(read(), path), edition)
    if not train or test is None:
        lacking = edition.test if train else edition.train.replace(r"\d+", "1")
        raise UserError(f"dataset {name} in {str(where)!r} lacks {lacking}; fetch {edition.archive} again")
    return checked_source(
        name,
        f"dataset {name} in {str(where)!r}",
        x_train=np.concatenate([images for images, _ in train]),
        y_train=np.concatenate([labels for _, labels in train]),
        x_test=test[0],
        y_test=test[1],
        class_names=class_names,
        augments=True,
    )


#: A file's place, and a function that reads it.
_File = tuple[Path, Callable[[], bytes]]


def _files(settings: DataSettings, name: str, edition: _Edition) -> tuple[Path, list[_File]]:
    """The folder or the archive, and the files in it: the archive is read where it lies, never unpacked."""
    parents = ("", name, name.upper())
    marker = find(settings, [str(Path(parent, edition.folder)) for parent in parents] + list(parents), [edition.test])
    if marker is not None:
        here = [path for path in marker.parent.iterdir() if path.is_file()]
        return marker.parent, [(path, lambda path=path: read_bytes(path, memory_of(settings))) for path in here]  # type: ignore[misc]
    if find(settings, parents, [edition.archive]) is None and not settings.download:
        places = f"{str(cache_dir(settings) / edition.folder)!r}, or {edition.archive} beside it"
        raise UserError(
            f"dataset {name} is not in {str(cache_dir(settings))!r}; put its files into {places}, set "
            "data_args.data_cache_dir to the folder that has it, or set data_args.download: true"
        )
    (archive,) = require(settings, parents, [[edition.archive]])
    contents = {Path(member).name: content for member, content in _members(archive, memory_of(settings))}
    return archive, [(archive / file, lambda file=file: contents[file]) for file in contents]  # type: ignore[misc]


def _members(archive: Path, memory: Memory) -> Iterator[tuple[str, bytes]]:
    # Unpacked first and as a whole: inside of it nothing can promise more than is there.
    content = read_bytes(archive, memory)
    size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for member in tar:
                # A sparse file is long without having the bytes.
                size += member.size
                memory.check(size, f"data file {str(archive)!r}, unpacked,")
                file = tar.extractfile(member) if member.isreg() else None
                if file is not None:
                    yield member.name, file.read()
    except UserError:
        raise
    # Its headers are texts and numbers, in which anything may be wrong.
    except Exception as error:
        raise damaged(archive, error) from error


def _batch(path: Path, content: Any, edition: _Edition) -> tuple[Array, Array]:
    """Images [N, 3, 32, 32] and classes [N] of one file."""
    if not isinstance(content, dict) or "data" not in content:
        raise UserError(f"data file {str(path)!r} has no entry 'data', so it is no batch of CIFAR; fetch it again")
    if edition.labels not in content:
        raise UserError(
            f"data file {str(path)!r} has no entry {edition.labels!r} and so no classes; fetch {edition.archive} again"
        )
    images = content["data"]
    if not isinstance(images, np.ndarray):
        raise damaged(path, f"its images are a {type(images).__name__} and no array")
    if images.dtype != np.uint8 or images.ndim == 0 or images.size != len(images) * np.prod(PIXELS):
        raise damaged(path, f"its images are {images.dtype} of shape {images.shape} and not uint8 of N, 3072")
    given = content[edition.labels]
    labels = given if isinstance(given, np.ndarray) else row_of_numbers(given)
    if labels is None or labels.dtype.kind not in "iu":
        raise damaged(path, f"its entry {edition.labels!r} is no row of whole numbers")
    if labels.shape != (len(images),):
        raise damaged(path, f"it has {len(images)} images but labels of shape {labels.shape}")
    return images.reshape(-1, *PIXELS), labels


def _class_names(path: Path, content: Any, edition: _Edition) -> list[str]:
    names = content.get(edition.names) if isinstance(content, dict) else None
    if not isinstance(names, list | tuple) or len(names) != edition.classes:
        raise damaged(path, f"it does not name {edition.classes} classes under {edition.names!r}")
    if not all(isinstance(name, str | bytes) for name in names):
        raise damaged(path, f"its entry {edition.names!r} holds something else than texts")
    return [name.decode("latin1") if isinstance(name, bytes) else str(name) for name in names]
