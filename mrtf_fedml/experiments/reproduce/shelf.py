"""Which data a scene is run on: the paper's own where they are there, else what stands in for them, and says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...data.fewer import evenly_spaced
from ...data.sources import SOURCES, Source, load_source
from ...errors import UserError, nearest
from ...settings import DataSettings
from .datasets import DATASETS, Dataset, given_file, is_there

#: What stands in where nothing else is given: it needs no file.
EMBEDDED = "digits"
#: A client of the embedded digits has at least so many samples: there are few of them.
LEAST_OF_EMBEDDED = 12


@dataclass(frozen=True)
class Data:
    """What stands for one of the paper's datasets.

    Attributes:
        dataset: the paper's.
        args: the `data_args` that name the data.
        stands_in: the name of what stands in; empty where the data are the paper's own.
    """

    dataset: Dataset
    args: dict[str, Any]
    stands_in: str = ""

    @property
    def title(self) -> str:
        """The name in figures; a stand-in is named beside it."""
        return f"{self.dataset.title} ({self.stands_in})" if self.stands_in else self.dataset.title

    @cached_property
    def source(self) -> Source:
        """The samples themselves."""
        return load_source(DataSettings(**self.args))

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """N, M and C. LEAF's are the paper's: only the users that a run draws tell more."""
        if self.dataset.by_user and not self.stands_in:
            return self.dataset.samples, self.dataset.server_samples, self.dataset.classes
        source = self.source
        sizes = len(source.y_train), len(source.x_test), source.class_num
        # The samples are not kept: the runs, in processes of their own, read them again.
        self.__dict__["by_user"], self.__dict__["model"] = self.by_user, self.model
        del self.__dict__["source"]
        return sizes

    @cached_property
    def by_user(self) -> bool:
        """Whether a client is a user."""
        return self.dataset.by_user and (not self.stands_in or self.source.users is not None)

    def thinned(self, of_client: Callable[[int], int]) -> tuple[int | None, int]:
        """Of how many samples, None for all, a user of mean size keeps `of_client`; and how many users are then left.

        The samples themselves are not kept.
        """
        source = self.source
        assert source.users is not None, "a client is a user here"
        owners = source.users.train
        each = max(1, len(owners) // max(1, len(np.unique(owners))))
        kept = len(owners) * min(each, of_client(each)) // each
        rows = evenly_spaced("client_samples", kept, len(owners), "")
        able = int((np.bincount(owners[rows]) >= DataSettings().min_samples).sum())
        del self.__dict__["source"]
        return (kept if kept < len(owners) else None), max(1, able)

    @cached_property
    def model(self) -> str:
        """The paper's network where it can read the samples."""
        return self.fitting(self.dataset.model)

    def fitting(self, model: str) -> str:
        """The network, or one that can read what stands in."""
        if not self.stands_in:
            return model
        if self.source.tokens or self.source.x_train.ndim < 3:
            return "charlstm" if self.source.tokens else "mlp"
        return "mlp" if model == "charlstm" else model

    @property
    def rate(self) -> float:
        """The learning rate; that of letters fits no picture."""
        fits = not self.stands_in or self.model == self.dataset.model
        return self.dataset.rate if fits else DATASETS["mnist"].rate


class Shelf:
    """The data that lie in a folder, and what the user gave to stand in for the rest.

    Args:
        folder: `data_cache_dir`.
        given: `--stand-in`: an empty word for the embedded digits, a file or a dataset for all that is missing, or
            `NAME=FILE.npz` and `NAME=DATASET` for one.
    """

    def __init__(self, folder: Path, given: Sequence[str] = ()) -> None:
        self.folder = folder
        self._named: dict[str, str] = {}
        self._for_all: str | None = None
        self._known: dict[str, Data] = {}
        for word in given:
            name, equals, value = word.rpartition("=")
            if equals and name not in DATASETS:
                raise UserError(f"--stand-in: the paper has no dataset {name!r}; {nearest(name, list(DATASETS))}")
            self._check(value)
            if equals:
                self._named[name] = value
            else:
                self._for_all = value or EMBEDDED

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those that are neither there nor stood in for."""
        return [name for name in dict.fromkeys(names) if self._found(name) is None]

    def require(self, names: Iterable[str], scene: str) -> None:
        """Refuse what is missing, with every file that is expected, before anything runs."""
        missing = self.missing(names)
        if missing:
            files = "; ".join(
                f"{DATASETS[name].title}: {', '.join(str(self.folder / file) for file in DATASETS[name].files)}, or "
                f"{self.folder / name}.npz"
                for name in missing
            )
            raise UserError(
                f"reproduce {scene} needs data that are not there: {files}. Put them there, name another folder with "
                f"--data, or run on what stands in for them with --stand-in"
            )

    def data(self, name: str) -> Data:
        """What stands for the dataset; `require` has seen to it that there is something."""
        if name not in self._known:
            found = self._found(name)
            assert found is not None, f"{name} is missing"
            self._known[name] = found
        return self._known[name]

    def _found(self, name: str) -> Data | None:
        dataset = DATASETS[name]
        if name in self._named:
            return self._stood_in(dataset, self._named[name])
        if is_there(name, self.folder):
            return Data(dataset, {"dataset": name, "data_cache_dir": str(self.folder)})
        file = given_file(name, self.folder)
        if file is not None:
            return Data(dataset, {"dataset": "npz", "data_file": str(file)})
        return None if self._for_all is None else self._stood_in(dataset, self._for_all)

    def _stood_in(self, dataset: Dataset, value: str) -> Data:
        if value in SOURCES:
            name = "scikit-learn digits" if value == EMBEDDED else value
            return Data(dataset, {"dataset": value, "data_cache_dir": str(self.folder)}, name)
        return Data(dataset, {"dataset": "npz", "data_file": value}, Path(value).name)

    def _check(self, value: str) -> None:
        if value and value not in SOURCES and not Path(value).expanduser().is_file():
            raise UserError(
                f"--stand-in: {value!r} is neither a file (.npz with x_train, y_train, x_test, y_test) nor a dataset; "
                + nearest(value, list(SOURCES))
            )
