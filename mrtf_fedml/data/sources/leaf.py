"""Datasets in LEAF's JSON format (S. Caldas et al., 2018): FEMNIST and Shakespeare.

The folders train/ and test/ have files with `users`, `num_samples` and `user_data`, a mapping from each user to `x` and
`y`.
"""

from __future__ import annotations

import json
import logging
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...config import DataSettings
from ...errors import UserError
from ..formatting import escape, quote
from .files import MemoryLimit, cache_dir, damaged_file_error, first_line, memory_limit, read_bytes
from .source import Array, Labels, Source, Users, make_source

logger = logging.getLogger("mrtf_fedml")

FEMNIST_FOLDERS = ("femnist", "FEMNIST", "FeMnist", "leaf/data/femnist", "")
FEMNIST_SIDE = 28
FEMNIST_CLASSES = [*string.digits, *string.ascii_uppercase, *string.ascii_lowercase]

SHAKESPEARE_FOLDERS = ("shakespeare", "Shakespeare", "leaf/data/shakespeare", "")
#: LEAF's alphabet: the index of a character is its position here.
ALL_LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
_SPACE = ALL_LETTERS.index(" ")
_UNKNOWN = 255
_LETTER_INDEX = np.full(256, _UNKNOWN, dtype=np.uint8)
_LETTER_INDEX[[ord(letter) for letter in ALL_LETTERS]] = np.arange(len(ALL_LETTERS))

#: Converts a user's x and y from JSON to arrays of equal length, with the class -1 for a label that is no class of the
#: dataset. Raises ValueError for invalid values.
Convert = Callable[[list[Any], list[Any]], tuple[Array, Labels]]


@dataclass(frozen=True)
class _Part:
    x: Array
    y: Labels
    #: The user of each sample, and its number among the samples of that user.
    users: list[str]
    numbers: list[int]


def load_leaf(
    settings: DataSettings, folders: Sequence[str], convert: Convert, class_names: Sequence[str], tokens: bool = False
) -> Source:
    """A LEAF dataset: the samples of train/ for the clients, those of test/ for the server.

    The samples of a user stay together; ids are `user:number`. Samples of train/ without a known class are excluded;
    those of test/ are labelled like the others and not scored.
    """
    origin, files = _list_files(settings, folders)
    limit = memory_limit(settings)
    train, test = (_read_part(part, convert, limit) for part in files)
    train = _with_known_class(train, str(origin))
    names = sorted({*train.users, *test.users})
    numbers = {name: number for number, name in enumerate(names)}
    owners = (np.array([numbers[user] for user in part.users], np.int64) for part in (train, test))
    users = Users([escape(name) for name in names], *owners)
    return make_source(
        settings.dataset,
        f"dataset {settings.dataset} in {str(origin)!r}",
        x_train=train.x,
        y_train=train.y,
        x_test=test.x,
        y_test=test.y,
        class_names=class_names,
        ids=[f"{user}:{number}" for user, number in zip(test.users, test.numbers, strict=True)],
        users=users,
        tokens=tokens,
        allow_unknown=True,
    )


def _list_files(settings: DataSettings, folders: Sequence[str]) -> tuple[Path, tuple[list[Path], list[Path]]]:
    """The first folder with JSON files of both parts: in train/ and test/, or distinguished by the files' names."""
    for folder in folders:
        for below in ("", "data"):
            root = cache_dir(settings) / folder / below
            for patterns in (("train/*.json", "test/*.json"), ("*train*.json", "*test*.json")):
                train, test = (sorted(root.glob(pattern)) for pattern in patterns)
                if train and test:
                    return root, (train, test)
    first = cache_dir(settings) / folders[0]
    raise UserError(
        f"dataset {settings.dataset} needs LEAF's files {str(first / 'train' / '*.json')!r} and "
        f"{str(first / 'test' / '*.json')!r}; put them there (LEAF's preprocess.sh -s niid --sf 1.0 -t sample makes "
        "them), or set data_args.data_cache_dir to the folder that has them"
    )


def _read_part(files: Sequence[Path], convert: Convert, limit: MemoryLimit) -> _Part:
    xs: list[Array] = []
    ys: list[Labels] = []
    users: list[str] = []
    numbers: list[int] = []
    counts: Counter[str] = Counter()
    # File by file and user by user: as Python objects the samples need ten times the memory of the arrays.
    for path in files:
        for user, x, y in _read_users(path, limit):
            try:
                x_user, y_user = convert(x, y)
                if xs and x_user.shape[1:] != xs[0].shape[1:]:
                    raise ValueError(f"a sample has shape {x_user.shape[1:]} where others have {xs[0].shape[1:]}")
            except (ValueError, TypeError, OverflowError) as error:
                raise UserError(
                    f"data file {str(path)!r}, user {quote(user)}: {first_line(error)}; download the file again"
                ) from error
            xs.append(x_user)
            ys.append(y_user)
            users += [user] * len(y_user)
            # The samples of a user may be in several files.
            numbers += range(counts[user], counts[user] + len(y_user))
            counts[user] += len(y_user)
    if not users:
        raise UserError(f"the files in {str(files[0].parent)!r} hold no sample; download them again")
    return _Part(np.concatenate(xs), np.concatenate(ys), users, numbers)


def _with_known_class(part: _Part, origin: str) -> _Part:
    """The samples with a known class. Only for the clients: the server's set must not depend on labels."""
    rows = np.flatnonzero(part.y >= 0)
    if len(rows) == 0:
        raise UserError(f"the files in {origin!r} hold no training sample of a known class; download them again")
    users, numbers = [part.users[row] for row in rows], [part.numbers[row] for row in rows]
    return _Part(part.x[rows], part.y[rows], users, numbers)


def _read_users(path: Path, limit: MemoryLimit) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Each user of a file with samples, with x and y."""
    if not path.is_file():
        raise damaged_file_error(path, "it is not a file")
    content_bytes = read_bytes(path, limit)
    try:
        content = json.loads(content_bytes)
    except (ValueError, RecursionError) as error:
        raise damaged_file_error(path, error) from error
    data = content.get("user_data") if isinstance(content, dict) else None
    if not isinstance(data, dict) or not isinstance(content.get("users", []), list):
        raise UserError(
            f"data file {str(path)!r} has no mapping 'user_data', so it is not a LEAF file; download it again"
        )
    names = [str(user) for user in content.get("users", data)]
    for user in names:
        samples = data.get(user)
        if not isinstance(samples, dict) or not all(isinstance(samples.get(key), list) for key in ("x", "y")):
            raise UserError(
                f"data file {str(path)!r}: user {quote(user)} has no lists 'x' and 'y' in user_data; download it again"
            )
        x, y = samples["x"], samples["y"]
        if len(x) != len(y):
            raise UserError(
                f"data file {str(path)!r}: user {quote(user)} has {len(x)} samples but {len(y)} labels; download "
                "it again"
            )
        if x:
            yield user, x, y
        # Free what was converted, so that a large file is in memory only once.
        data[user] = None


def load_femnist(settings: DataSettings) -> Source:
    """FEMNIST: handwritten digits and letters of NIST's special database 19; a client is a writer.

    28x28 grey images of 62 classes, dark on white as in LEAF.
    """
    return load_leaf(settings, FEMNIST_FOLDERS, _convert_femnist, FEMNIST_CLASSES)


def _convert_femnist(x: list[Any], y: list[Any]) -> tuple[Array, Labels]:
    # LEAF divided bytes by 255, so the conversion to uint8 is exact and needs a quarter of the memory.
    values = np.asarray(x, dtype=np.float32).reshape(len(x), -1)
    if values.shape[1] != FEMNIST_SIDE**2:
        raise ValueError(f"a sample has {values.shape[1]} values and not {FEMNIST_SIDE**2}")
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("a sample has values outside 0 to 1")
    # Checked one by one: NumPy would truncate fractions, parse strings, and flatten nested lists.
    classes = range(len(FEMNIST_CLASSES))
    wrong = [label for label in y if not isinstance(label, int | float) or label not in classes]
    if wrong:
        raise ValueError(f"a label is {quote(wrong[0])}, but there are 62 classes, from 0 to 61")
    pixels = np.rint(values * 255).astype(np.uint8).reshape(-1, FEMNIST_SIDE, FEMNIST_SIDE)
    return pixels, np.array(y, dtype=np.int64)


def load_shakespeare(settings: DataSettings) -> Source:
    """Shakespeare: windows of 80 characters and the next character, as indices; a client is a role of a play.

    A character outside LEAF's alphabet is read as a space. A window followed by such a character has no class: it is
    excluded from the clients' samples, and not scored in the server's.
    """
    foreign: list[int] = []
    class_names = letter_class_names(ALL_LETTERS)
    source = load_leaf(
        settings, SHAKESPEARE_FOLDERS, lambda x, y: _convert_shakespeare(x, y, foreign), class_names, tokens=True
    )
    if any(foreign):
        logger.warning("shakespeare: %d characters are outside LEAF's alphabet of 80", sum(foreign))
    return source


def letter_class_names(letters: Iterable[str]) -> list[str]:
    """The letters as class names, with visible names for white space."""
    return [{"\n": "newline", " ": "space"}.get(letter, letter) for letter in letters]


def _convert_shakespeare(x: list[Any], y: list[Any], foreign: list[int]) -> tuple[Array, Labels]:
    """A user's windows and letters as indices; appends the number of unknown characters to `foreign`."""
    if not all(isinstance(window, str) for window in x) or not all(isinstance(letter, str) for letter in y):
        raise ValueError("x and y must be strings")
    lengths = {len(window) for window in x}
    if len(lengths) != 1:
        raise ValueError(f"its windows have {min(lengths)} to {max(lengths)} characters and not all the same number")
    if any(len(letter) != 1 for letter in y):
        raise ValueError("a label is not a single character")
    windows, labels = letter_indices("".join(x)).reshape(len(x), -1), letter_indices("".join(y))
    foreign.append(int((windows == _UNKNOWN).sum() + (labels == _UNKNOWN).sum()))
    classes = np.where(labels == _UNKNOWN, -1, labels.astype(np.int64))
    return np.where(windows == _UNKNOWN, np.uint8(_SPACE), windows), classes


def letter_indices(characters: str) -> npt.NDArray[np.uint8]:
    r"""The index of each character in LEAF's alphabet, 255 for others.

    >>> letter_indices("\n b").tolist()
    [0, 1, 54]
    """
    codes = np.frombuffer(characters.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    return np.where(codes < 256, _LETTER_INDEX[np.minimum(codes, 255)], np.uint8(_UNKNOWN))
