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

from ...config import DataSettings
from ...errors import UserError
from .files import (
    MemoryLimit,
    cache_dir,
    damaged_file_error,
    find_file,
    memory_limit,
    read_bytes,
    require_files,
)
from .safe_pickle import integer_array, load_pickle
from .source import Array, Source, make_source

IMAGE_SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class _Layout:
    folder: str
    archive: str
    train: str
    test: str
    meta: str
    labels: str
    names: str
    classes: int


_LAYOUTS = {
    "cifar10": _Layout(
        *("cifar-10-batches-py", "cifar-10-python.tar.gz", r"data_batch_\d+", "test_batch", "batches.meta"),
        *("labels", "label_names", 10),
    ),
    "cifar100": _Layout(
        *("cifar-100-python", "cifar-100-python.tar.gz", "train", "test", "meta"),
        *("fine_labels", "fine_label_names", 100),
    ),
}


def load_cifar10(settings: DataSettings) -> Source:
    """50000 and 10000 small photographs of 10 classes."""
    return _load(settings, "cifar10")


def load_cifar100(settings: DataSettings) -> Source:
    """50000 and 10000 small photographs of the 100 fine classes."""
    return _load(settings, "cifar100")


def _load(settings: DataSettings, name: str) -> Source:
    layout = _LAYOUTS[name]
    origin, files = _list_files(settings, name, layout)
    train: list[tuple[Array, Array]] = []
    test: tuple[Array, Array] | None = None
    class_names: list[str] = [str(number) for number in range(layout.classes)]
    for path, read in sorted(files, key=lambda file: file[0].name):
        if re.fullmatch(layout.train, path.name):
            train.append(_parse_batch(path, load_pickle(read(), path), layout))
        elif path.name == layout.test:
            test = _parse_batch(path, load_pickle(read(), path), layout)
        elif path.name == layout.meta:
            class_names = _parse_class_names(path, load_pickle(read(), path), layout)
    if not train or test is None:
        missing = layout.test if train else layout.train.replace(r"\d+", "1")
        raise UserError(f"dataset {name} in {str(origin)!r} lacks {missing}; download {layout.archive} again")
    return make_source(
        name,
        f"dataset {name} in {str(origin)!r}",
        x_train=np.concatenate([images for images, _ in train]),
        y_train=np.concatenate([labels for _, labels in train]),
        x_test=test[0],
        y_test=test[1],
        class_names=class_names,
        augments=True,
    )


#: A file's path, and a function that reads it.
_File = tuple[Path, Callable[[], bytes]]


def _list_files(settings: DataSettings, name: str, layout: _Layout) -> tuple[Path, list[_File]]:
    """The folder or the archive, and the files in it; the archive is read in memory and never unpacked to disk."""
    parents = ("", name, name.upper())
    marker = find_file(
        settings, [str(Path(parent, layout.folder)) for parent in parents] + list(parents), [layout.test]
    )
    if marker is not None:
        here = [path for path in marker.parent.iterdir() if path.is_file()]
        return marker.parent, [(path, lambda path=path: read_bytes(path, memory_limit(settings))) for path in here]  # type: ignore[misc]
    if find_file(settings, parents, [layout.archive]) is None and not settings.download:
        places = f"{str(cache_dir(settings) / layout.folder)!r}, or {layout.archive} into {str(cache_dir(settings))!r}"
        raise UserError(
            f"dataset {name} is not in {str(cache_dir(settings))!r}; put its files into {places}, set "
            "data_args.data_cache_dir to the folder that has it, or set data_args.download: true"
        )
    (archive,) = require_files(settings, parents, [[layout.archive]])
    contents = {Path(member).name: content for member, content in _archive_members(archive, memory_limit(settings))}
    return archive, [(archive / file, lambda file=file: contents[file]) for file in contents]  # type: ignore[misc]


def _archive_members(archive: Path, limit: MemoryLimit) -> Iterator[tuple[str, bytes]]:
    # Decompressed completely first, so that no header inside can announce more than is there.
    content = read_bytes(archive, limit)
    size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for member in tar:
                # A sparse file has a large size without the bytes.
                size += member.size
                limit.check(size, f"data file {str(archive)!r}, unpacked,")
                file = tar.extractfile(member) if member.isreg() else None
                if file is not None:
                    yield member.name, file.read()
    except UserError:
        raise
    # The headers are strings and numbers, in which anything may be wrong.
    except Exception as error:
        raise damaged_file_error(archive, error) from error


def _parse_batch(path: Path, content: Any, layout: _Layout) -> tuple[Array, Array]:
    """Images [N, 3, 32, 32] and classes [N] of one file."""
    if not isinstance(content, dict) or "data" not in content:
        raise UserError(f"data file {str(path)!r} has no entry 'data', so it is not a CIFAR batch; download it again")
    if layout.labels not in content:
        raise UserError(
            f"data file {str(path)!r} has no entry {layout.labels!r} and so no classes; download {layout.archive} again"
        )
    images = content["data"]
    if not isinstance(images, np.ndarray):
        raise damaged_file_error(path, f"its images are a {type(images).__name__} and not an array")
    if images.dtype != np.uint8 or images.ndim == 0 or images.size != len(images) * np.prod(IMAGE_SHAPE):
        raise damaged_file_error(
            path, f"its images are {images.dtype} of shape {images.shape} and not uint8 of N, 3072"
        )
    entry = content[layout.labels]
    labels = entry if isinstance(entry, np.ndarray) else integer_array(entry)
    if labels is None or labels.dtype.kind not in "iu":
        raise damaged_file_error(path, f"its entry {layout.labels!r} is not a list of integers")
    if labels.shape != (len(images),):
        raise damaged_file_error(path, f"it has {len(images)} images but labels of shape {labels.shape}")
    return images.reshape(-1, *IMAGE_SHAPE), labels


def _parse_class_names(path: Path, content: Any, layout: _Layout) -> list[str]:
    names = content.get(layout.names) if isinstance(content, dict) else None
    if not isinstance(names, list | tuple) or len(names) != layout.classes:
        raise damaged_file_error(path, f"it does not name {layout.classes} classes under {layout.names!r}")
    if not all(isinstance(name, str | bytes) for name in names):
        raise damaged_file_error(path, f"its entry {layout.names!r} does not hold strings only")
    return [name.decode("latin1") if isinstance(name, bytes) else str(name) for name in names]
