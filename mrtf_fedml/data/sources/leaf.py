"""LEAF's JSON (S. Caldas et al., 2018): folders train/ and test/, each with files of users and their samples.

A file holds `users`, `num_samples` and `user_data`, a mapping from each user to `x` and `y`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ...settings import DataSettings
from ..names import printable, shown
from .checks import checked_source
from .memory import Memory, memory_of
from .reading import (
    cache_dir,
    damaged,
    first_line,
    read_bytes,
)
from .source import (
    Array,
    Labels,
    Source,
    Users,
)

#: From a user's x and y, as JSON has them, to arrays of the same length, with the class -1 where it is none of
#: the dataset's. Raises ValueError where they do not fit.
Convert = Callable[[list[Any], list[Any]], tuple[Array, Labels]]


@dataclass(frozen=True)
class _Part:
    x: Array
    y: Labels
    #: Whose each sample is, and its place among that user's.
    users: list[str]
    numbers: list[int]


def load_leaf(
    settings: DataSettings, folders: Sequence[str], convert: Convert, class_names: Sequence[str], tokens: bool = False
) -> Source:
    """A LEAF dataset: the samples of train/ for the clients, those of test/ for the server.

    A user's samples stay together; ids are `user:number`. Samples of train/ without a known class are left out;
    those of test/ are labelled like the rest and not marked.
    """
    where, files = _files(settings, folders)
    memory = memory_of(settings)
    train, test = (_read(part, convert, memory) for part in files)
    train = _known(train, str(where))
    names = sorted({*train.users, *test.users})
    numbers = {name: number for number, name in enumerate(names)}
    owners = (np.array([numbers[user] for user in part.users], np.int64) for part in (train, test))
    users = Users([printable(name) for name in names], *owners)
    return checked_source(
        settings.dataset,
        f"dataset {settings.dataset} in {str(where)!r}",
        x_train=train.x,
        y_train=train.y,
        x_test=test.x,
        y_test=test.y,
        class_names=class_names,
        ids=[f"{user}:{number}" for user, number in zip(test.users, test.numbers, strict=True)],
        users=users,
        tokens=tokens,
        unknown=True,
    )


def _files(settings: DataSettings, folders: Sequence[str]) -> tuple[Path, tuple[list[Path], list[Path]]]:
    """The first folder with JSON for both parts: in train/ and test/, or told apart by the files' own names."""
    for folder in folders:
        for below in ("", "data"):
            place = cache_dir(settings) / folder / below
            for patterns in (("train/*.json", "test/*.json"), ("*train*.json", "*test*.json")):
                train, test = (sorted(place.glob(pattern)) for pattern in patterns)
                if train and test:
                    return place, (train, test)
    first = cache_dir(settings) / folders[0]
    raise UserError(
        f"dataset {settings.dataset} needs LEAF's files {str(first / 'train' / '*.json')!r} and "
        f"{str(first / 'test' / '*.json')!r}; put them there (LEAF's preprocess.sh -s niid --sf 1.0 -t sample makes "
        "them), or set data_args.data_cache_dir to the folder that has them"
    )


def _read(files: Sequence[Path], convert: Convert, memory: Memory) -> _Part:
    xs: list[Array] = []
    ys: list[Labels] = []
    users: list[str] = []
    numbers: list[int] = []
    counts: Counter[str] = Counter()
    # File by file and user by user: as Python's objects the samples take ten times the room of the arrays.
    for path in files:
        for user, x, y in _users(path, memory):
            try:
                x_user, y_user = convert(x, y)
                if xs and x_user.shape[1:] != xs[0].shape[1:]:
                    raise ValueError(f"a sample has shape {x_user.shape[1:]} where others have {xs[0].shape[1:]}")
            except (ValueError, TypeError, OverflowError) as error:
                raise UserError(
                    f"data file {str(path)!r}, user {shown(user)}: {first_line(error)}; fetch the file again"
                ) from error
            xs.append(x_user)
            ys.append(y_user)
            users += [user] * len(y_user)
            # A user's samples may lie in several files.
            numbers += range(counts[user], counts[user] + len(y_user))
            counts[user] += len(y_user)
    if not users:
        raise UserError(f"the files in {str(files[0].parent)!r} hold no sample; fetch them again")
    return _Part(np.concatenate(xs), np.concatenate(ys), users, numbers)


def _known(part: _Part, where: str) -> _Part:
    """The samples whose class is known. Only the clients': which samples a server has must not depend on labels."""
    rows = np.flatnonzero(part.y >= 0)
    if len(rows) == 0:
        raise UserError(f"the files in {where!r} hold no training sample of a known class; fetch them again")
    users, numbers = [part.users[row] for row in rows], [part.numbers[row] for row in rows]
    return _Part(part.x[rows], part.y[rows], users, numbers)


def _users(path: Path, memory: Memory) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Each user of a file who has samples, with x and y."""
    if not path.is_file():
        raise damaged(path, "it is no file")
    text = read_bytes(path, memory)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(path, error) from error
    data = content.get("user_data") if isinstance(content, dict) else None
    if not isinstance(data, dict) or not isinstance(content.get("users", []), list):
        raise UserError(f"data file {str(path)!r} has no mapping 'user_data', so it is none of LEAF's; fetch it again")
    listed = [str(user) for user in content.get("users", data)]
    for user in listed:
        samples = data.get(user)
        if not isinstance(samples, dict) or not all(isinstance(samples.get(key), list) for key in ("x", "y")):
            raise UserError(
                f"data file {str(path)!r}: user {shown(user)} has no lists 'x' and 'y' in user_data; fetch it again"
            )
        x, y = samples["x"], samples["y"]
        if len(x) != len(y):
            raise UserError(
                f"data file {str(path)!r}: user {shown(user)} has {len(x)} samples but {len(y)} labels; fetch it again"
            )
        if x:
            yield user, x, y
        # What was converted is let go, so that a large file is held once.
        data[user] = None
