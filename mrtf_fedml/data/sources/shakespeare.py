"""Shakespeare: the next character of a speaking role (LEAF, from the Complete Works)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ...settings import DataSettings
from .leaf import load_leaf
from .source import Array, Labels, Source

logger = logging.getLogger("mrtf_fedml")

FOLDERS = ("shakespeare", "Shakespeare", "leaf/data/shakespeare", "")

#: LEAF's alphabet: a character's index is its place here.
ALL_LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
_SPACE = ALL_LETTERS.index(" ")
_UNKNOWN = 255
_INDEX = np.full(256, _UNKNOWN, dtype=np.uint8)
_INDEX[[ord(letter) for letter in ALL_LETTERS]] = np.arange(len(ALL_LETTERS))


def letter_names(letters: Iterable[str]) -> list[str]:
    """The letters as names of classes, of which none is blank."""
    return [{"\n": "newline", " ": "space"}.get(letter, letter) for letter in letters]


def load_shakespeare(settings: DataSettings) -> Source:
    """Windows of 80 characters and the character that follows, as indices; a client is a role of a play.

    A character outside LEAF's alphabet is read as a space. A window that such a one follows has no class: the
    clients' are left out, and the server's not marked.
    """
    foreign: list[int] = []
    source = load_leaf(settings, FOLDERS, lambda x, y: _convert(x, y, foreign), letter_names(ALL_LETTERS), tokens=True)
    if any(foreign):
        logger.warning("shakespeare: %d characters are outside LEAF's alphabet of 80", sum(foreign))
    return source


def _convert(x: list[Any], y: list[Any], foreign: list[int]) -> tuple[Array, Labels]:
    """A user's windows and letters as indices; how many characters had none is noted in `foreign`."""
    if not all(isinstance(window, str) for window in x) or not all(isinstance(letter, str) for letter in y):
        raise ValueError("x and y must be texts")
    lengths = {len(window) for window in x}
    if len(lengths) != 1:
        raise ValueError(f"its windows have {min(lengths)} to {max(lengths)} characters and not all the same number")
    if any(len(letter) != 1 for letter in y):
        raise ValueError("a label is not a single character")
    windows, labels = indices("".join(x)).reshape(len(x), -1), indices("".join(y))
    foreign.append(int((windows == _UNKNOWN).sum() + (labels == _UNKNOWN).sum()))
    classes = np.where(labels == _UNKNOWN, -1, labels.astype(np.int64))
    return np.where(windows == _UNKNOWN, np.uint8(_SPACE), windows), classes


def indices(text: str) -> npt.NDArray[np.uint8]:
    r"""The index of each character in LEAF's alphabet, 255 where it has none.

    >>> indices("\n b").tolist()
    [0, 1, 54]
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    return np.where(codes < 256, _INDEX[np.minimum(codes, 255)], np.uint8(_UNKNOWN))
