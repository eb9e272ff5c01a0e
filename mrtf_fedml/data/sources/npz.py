"""`dataset: npz`: a user's own arrays, as `numpy.savez` writes them.

Nothing is unpickled, and every header is checked before memory is allocated.
"""

from __future__ import annotations

import logging
import math
import os
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from ...config import DataSettings
from ...errors import UserError
from ..formatting import format_list, quote, unescape
from .files import MemoryLimit, file_problem, first_line, memory_limit
from .leaf import letter_class_names
from .source import Array, Source, Users, make_source, to_strings

logger = logging.getLogger("mrtf_fedml")

_SUFFIX = ".npy"

REQUIRED = ("x_train", "y_train", "x_test")
OPTIONAL = ("y_test", "class_names", "ids")

#: The user of each sample, and the letters whose indices x holds.
USERS_AND_ALPHABET = ("u_train", "u_test", "alphabet")


def load_npz(settings: DataSettings) -> Source:
    """The arrays of `data_file`: x_train, y_train, x_test and, optionally, y_test, class_names, ids.

    `u_train` and `u_test` have the user of each sample. With `alphabet`, x holds indices of letters, words or the
    like, which stay integers; y too, unless `class_names` has other classes. Arrays of Python objects are rejected.
    """
    if settings.data_file is None:
        raise UserError("data_args.dataset is npz but data_args.data_file is not set; set it to the .npz file")
    path = Path(os.path.expanduser(settings.data_file))
    origin = f"data file {str(path)!r}"
    if not path.is_file():
        raise UserError(f"{origin} {file_problem(path)}; correct data_args.data_file")
    arrays: dict[str, Any] = read_npz(path, origin, memory_limit(settings), REQUIRED, (*OPTIONAL, *USERS_AND_ALPHABET))
    extra = {key: arrays.pop(key) for key in USERS_AND_ALPHABET if key in arrays}
    if "alphabet" in extra:
        letters = _alphabet_letters(origin, extra["alphabet"])
        _check_letter_indices(origin, arrays, len(letters))
        arrays.setdefault("class_names", letter_class_names(letters))
    else:
        _number_string_labels(origin, arrays)
    source = make_source(path.stem, origin, **arrays, tokens="alphabet" in extra)
    source = replace(source, users=_make_users(origin, arrays, extra))
    if source.x_train.dtype == np.uint8 and source.x_train.ndim == 2 and not source.tokens:
        logger.warning(
            "%r: x_train holds rows of uint8, read as numbers of a table; provide images as N,H,W", str(path)
        )
    return source


def read_npz(
    path: Path, origin: str, limit: MemoryLimit, required: Sequence[str] = (), optional: Sequence[str] | None = None
) -> dict[str, Array]:
    """The arrays of these names; a `UserError` if a required one is missing or an array cannot be read.

    Other arrays of the file are not read; if `optional` is None, all are. `origin` is the file's name in messages.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise UserError(
                    f"{origin} holds a single array; write one .npz file with numpy.savez(file, "
                    f"{', '.join(f'{key}=...' for key in required)})"
                )
        archive = zipfile.ZipFile(path)
    except UserError:
        raise
    # For a damaged file zipfile raises exceptions without a common base class.
    except Exception as error:
        raise UserError(
            f"{origin} cannot be read as an .npz file ({first_line(error)}); write it again with numpy.savez"
        ) from error
    with archive:
        counts = Counter(name.removesuffix(_SUFFIX) for name in archive.namelist())
        for key in required:
            if key not in counts:
                raise UserError(
                    f"{origin} has no array {key!r} (it holds {format_list(counts) or 'none'}); "
                    f"add it with numpy.savez(file, {key}=..., ...)"
                )
        wanted = list(counts) if optional is None else [key for key in (*required, *optional) if key in counts]
        duplicates = [key for key in wanted if counts[key] > 1]
        if duplicates:
            raise UserError(f"{origin} has the array {format_list(duplicates)} twice; write it again with numpy.savez")
        sizes = [_array_size(origin, archive, key, limit) for key in wanted]
        limit.check(sum(sizes), origin)
        return {key: _read_array(origin, archive, key) for key in wanted}


def _array_size(origin: str, archive: zipfile.ZipFile, key: str, limit: MemoryLimit) -> int:
    """The size of an array in bytes, from its header."""
    with _open_member(origin, archive, key) as file:
        shape, dtype = _read_header(file)
        limit.check_array(shape, dtype.itemsize, f"{origin}: array {key!r}")
        return math.prod(shape) * dtype.itemsize


def _read_array(origin: str, archive: zipfile.ZipFile, key: str) -> Array:
    with _open_member(origin, archive, key) as file:
        array: Array = npy.read_array(file, allow_pickle=False)
        # Read to the end: zipfile compares the checksum only there.
        if file.read(1):
            raise ValueError("it has more data than its header announces")
        return array


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype, read with NumPy's functions."""
    version = npy.read_magic(file)
    read: Any = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject or dtype.kind == "V":
        raise ValueError(f"it holds {'Python objects' if dtype.hasobject else 'records'}, which are not supported")
    if any(axis < 0 for axis in shape):
        raise ValueError(f"its shape is {shape}")
    return shape, dtype


@contextmanager
def _open_member(origin: str, archive: zipfile.ZipFile, key: str) -> Iterator[IO[bytes]]:
    """One member of the archive; every failure becomes a `UserError`."""
    try:
        name = key + _SUFFIX
        with archive.open(name if name in archive.NameToInfo else key) as file:
            yield file
    except UserError:
        raise
    # A header is a Python literal, and a member may have any compression: errors have no common base class.
    except Exception as error:
        raise UserError(
            f"{origin}: array {key!r} cannot be read ({first_line(error)}); "
            "write plain numbers and strings, again with numpy.savez"
        ) from error


def _number_string_labels(origin: str, arrays: dict[str, Any]) -> None:
    """Replace string labels by class numbers: in the order of class_names, else in alphabetical order."""
    if arrays["y_train"].dtype.kind not in "US":
        return
    strings = {key: to_strings(arrays[key].reshape(-1)) for key in ("y_train", "y_test") if key in arrays}
    if "" in strings["y_train"]:
        raise UserError(
            f"{origin}: y_train has no label at sample {strings['y_train'].index('')}; add it or leave the sample out"
        )
    if "class_names" in arrays:
        names = to_strings(arrays["class_names"])
    else:
        names = sorted(set(strings["y_train"]))
        # Unescaped, since `make_source` would otherwise escape them twice.
        arrays["class_names"] = [unescape(name) for name in names]
    number = {name: index for index, name in enumerate(names)}
    for key, labels in strings.items():
        unknown = next((label for label in labels if label not in number), None)
        if unknown is not None:
            where = "is not in class_names" if key == "y_train" else "no client has"
            raise UserError(
                f"{origin}: {key} has the label {quote(unknown)}, which {where}; correct it or leave it out"
            )
        arrays[key] = np.array([number[label] for label in labels], dtype=np.int64).reshape(arrays[key].shape)


def _make_users(origin: str, arrays: dict[str, Array], extra: dict[str, Array]) -> Users | None:
    if "u_train" not in extra:
        return None
    owners = [extra["u_train"], extra.get("u_test", np.array([], dtype=extra["u_train"].dtype))]
    for key, own, samples in zip(("u_train", "u_test"), owners, (arrays["x_train"], arrays["x_test"]), strict=True):
        if own.ndim != 1 or own.dtype.kind not in "USiu" or (key in extra and len(own) != len(samples)):
            raise UserError(f"{origin}: {key} must have one user per sample, not {own.dtype} of shape {own.shape}")
    # Without u_test the server's samples have no user.
    test = np.full(len(arrays["x_test"]), -1, dtype=np.int64)
    names, train = np.unique(owners[0], return_inverse=True)
    if "u_test" in extra:
        names, both = np.unique(np.concatenate(owners), return_inverse=True)
        train, test = np.split(both.reshape(-1), [len(owners[0])])
    return Users(to_strings(names), train.astype(np.int64), test.astype(np.int64))


def _alphabet_letters(origin: str, alphabet: Array) -> list[str]:
    """The letters of one string, or of an array of strings."""
    if alphabet.ndim > 1 or alphabet.dtype.kind not in ("U" if alphabet.ndim == 0 else "USiu"):
        raise UserError(
            f"{origin}: alphabet must be one string or a list of strings, not {alphabet.dtype} of shape "
            f"{alphabet.shape}"
        )
    return list(str(alphabet)) if alphabet.ndim == 0 else to_strings(alphabet)


def _check_letter_indices(origin: str, arrays: dict[str, Array], letters: int) -> None:
    for key in ("x_train", "x_test"):
        x = arrays[key]
        if x.dtype.kind not in "iu" or (x.size and not 0 <= int(x.min()) <= int(x.max()) < letters):
            raise UserError(f"{origin}: {key} must hold integers from 0 to {letters - 1}, indices into alphabet")
