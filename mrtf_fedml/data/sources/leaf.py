"""LEAF's JSON (S. Caldas et al., 2018): folders train/ and test/, each with files of users and their samples.

A file holds `users`, `num_samples` and `user_data`, a mapping from each user to `x` and `y`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from ...settings import DataSettings
from .checks import checked_source
from .reading import UNREADABLE, cache_dir, damaged
from .source import (
    Array,
    Labels,
    Source,
    Users,
)

#: From a user's x and y, as JSON has them, to arrays. Raises ValueError where they do not fit.
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

    A user's samples stay together; ids are `user:number`.
    """
    where, files = _files(settings, folders)
    train, test = (_read(part, convert) for part in files)
    names = sorted({*train.users, *test.users})
    numbers = {name: number for number, name in enumerate(names)}
    users = Users(names, *(np.array([numbers[user] for user in part.users], np.int64) for part in (train, test)))
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


def _read(files: Sequence[Path], convert: Convert) -> _Part:
    xs: list[Array] = []
    ys: list[Labels] = []
    users: list[str] = []
    numbers: list[int] = []
    # File by file and user by user: as Python's objects the samples take ten times the room of the arrays.
    for path in files:
        for user, x, y in _users(path):
            try:
                x_user, y_user = convert(x, y)
            except (ValueError, TypeError) as error:
                raise UserError(f"data file {str(path)!r}, user {user!r}: {error}; fetch the file again") from error
            xs.append(x_user)
            ys.append(y_user)
            users += [user] * len(y_user)
            numbers += range(len(y_user))
    if not users:
        raise UserError(f"the files in {str(files[0].parent)!r} hold no sample; fetch them again")
    return _Part(np.concatenate(xs), np.concatenate(ys), users, numbers)


def _users(path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Each user of a file who has samples, with x and y."""
    try:
        content = json.loads(path.read_bytes())
    except (*UNREADABLE, RecursionError) as error:
        raise damaged(path, error) from error
    data = content.get("user_data") if isinstance(content, dict) else None
    if not isinstance(data, dict) or not isinstance(content.get("users", []), list):
        raise UserError(f"data file {str(path)!r} has no mapping 'user_data', so it is none of LEAF's; fetch it again")
    listed = [str(user) for user in content.get("users", data)]
    for user in listed:
        samples = data.get(user)
        if not isinstance(samples, dict) or not all(isinstance(samples.get(key), list) for key in ("x", "y")):
            raise UserError(
                f"data file {str(path)!r}: user {user!r} has no lists 'x' and 'y' in user_data; fetch the file again"
            )
        x, y = samples["x"], samples["y"]
        if len(x) != len(y):
            raise UserError(
                f"data file {str(path)!r}: user {user!r} has {len(x)} samples but {len(y)} labels; fetch it again"
            )
        if x:
            yield user, x, y
        # What was converted is let go, so that a large file is held once.
        data[user] = None
