"""`dataset: npz`: a user's own arrays, as NumPy's `savez` writes them."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ...settings import DataSettings
from ..names import original, shown
from .checks import checked_source, texts_of
from .memory import Memory, memory_of
from .npz_arrays import read_npz
from .shakespeare import letter_names
from .source import Array, Source, Users

logger = logging.getLogger("mrtf_fedml")

REQUIRED = ("x_train", "y_train", "x_test")
OPTIONAL = ("y_test", "class_names", "ids")

#: Whose each sample is, and the letters of which x holds the indices.
MORE = ("u_train", "u_test", "alphabet")


def load_npz(settings: DataSettings) -> Source:
    """The arrays of `data_file`: x_train, y_train, x_test and, where they exist, y_test, class_names, ids.

    `u_train` and `u_test` name the user of each sample. `alphabet` says that x holds indices of letters, words
    or the like, which stay whole numbers; y then too, unless `class_names` name other classes. Nothing is
    unpickled: an array of Python objects is refused.
    """
    if settings.data_file is None:
        raise UserError("data_args.dataset is npz but data_args.data_file is not given; name the .npz file there")
    path = Path(settings.data_file).expanduser()
    origin = f"data file {str(path)!r}"
    arrays: dict[str, Any] = _read(path, origin, memory_of(settings))
    more = {key: arrays.pop(key) for key in MORE if key in arrays}
    if "alphabet" in more:
        letters = _letters(origin, more["alphabet"])
        _check_indices(origin, arrays, len(letters))
        arrays.setdefault("class_names", letter_names(letters))
    else:
        _number_texts(origin, arrays)
    source = checked_source(path.stem, origin, **arrays, tokens="alphabet" in more)
    source = replace(source, users=_users(origin, arrays, more))
    if source.x_train.dtype == np.uint8 and source.x_train.ndim == 2 and not source.tokens:
        logger.warning("%r: x_train holds rows of uint8, taken as a table's numbers; give images as N,H,W", str(path))
    return source


def _number_texts(origin: str, arrays: dict[str, Any]) -> None:
    """Labels that are texts become the numbers of their classes: those of class_names, else in the letters' order."""
    if arrays["y_train"].dtype.kind not in "US":
        return
    texts = {key: texts_of(arrays[key].reshape(-1)) for key in ("y_train", "y_test") if key in arrays}
    if "" in texts["y_train"]:
        raise UserError(
            f"{origin}: y_train has no label at sample {texts['y_train'].index('')}; name its class or leave it out"
        )
    if "class_names" in arrays:
        names = texts_of(arrays["class_names"])
    else:
        names = sorted(set(texts["y_train"]))
        # As they were: what is written as a sign already would be taken for letters, and written so once more.
        arrays["class_names"] = [original(name) for name in names]
    number = {name: place for place, name in enumerate(names)}
    for key, labels in texts.items():
        unknown = next((label for label in labels if label not in number), None)
        if unknown is not None:
            known = "class_names does not list" if key == "y_train" else "no client has"
            raise UserError(
                f"{origin}: {key} has the label {shown(unknown)}, which {known}; correct it or leave it out"
            )
        arrays[key] = np.array([number[label] for label in labels], dtype=np.int64).reshape(arrays[key].shape)


def _read(path: Path, origin: str, memory: Memory) -> dict[str, Array]:
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise UserError(f"{origin} {what}; correct data_args.data_file")
    return read_npz(path, origin, memory, REQUIRED, (*OPTIONAL, *MORE))


def _users(origin: str, arrays: dict[str, Array], more: dict[str, Array]) -> Users | None:
    if "u_train" not in more:
        return None
    owners = [more["u_train"], more.get("u_test", np.array([], dtype=more["u_train"].dtype))]
    for key, own, samples in zip(("u_train", "u_test"), owners, (arrays["x_train"], arrays["x_test"]), strict=True):
        if own.ndim != 1 or own.dtype.kind not in "USiu" or (key in more and len(own) != len(samples)):
            raise UserError(f"{origin}: {key} must be one user a sample, not {own.dtype} of shape {own.shape}")
    # Without u_test nobody made the server's samples.
    numbers = np.full(len(arrays["x_test"]), -1, dtype=np.int64)
    names, train = np.unique(owners[0], return_inverse=True)
    if "u_test" in more:
        names, both = np.unique(np.concatenate(owners), return_inverse=True)
        train, numbers = np.split(both.reshape(-1), [len(owners[0])])
    return Users(texts_of(names), train.astype(np.int64), numbers.astype(np.int64))


def _letters(origin: str, alphabet: Array) -> list[str]:
    """One text with all letters in it, or a row of texts."""
    if alphabet.ndim > 1 or alphabet.dtype.kind not in ("U" if alphabet.ndim == 0 else "USiu"):
        raise UserError(
            f"{origin}: alphabet must be one text or a row of texts, not {alphabet.dtype} of shape {alphabet.shape}"
        )
    return list(str(alphabet)) if alphabet.ndim == 0 else texts_of(alphabet)


def _check_indices(origin: str, arrays: dict[str, Array], letters: int) -> None:
    for key in ("x_train", "x_test"):
        x = arrays[key]
        if x.dtype.kind not in "iu" or (x.size and not 0 <= int(x.min()) <= int(x.max()) < letters):
            raise UserError(f"{origin}: {key} must hold whole numbers from 0 to {letters - 1}, the alphabet's places")
