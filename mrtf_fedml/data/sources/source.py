"""What every source gives, whatever its format was."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .csv_columns import Columns

Array = npt.NDArray[np.generic]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Users:
    """Whose each sample is, for data that people or devices made: FEMNIST's writers, Shakespeare's roles."""

    names: list[str]
    #: The user of each of the clients' samples [N], an index into `names`.
    train: Labels = field(repr=False)
    #: The user of each of the server's samples [M].
    test: Labels = field(repr=False)


@dataclass(frozen=True, eq=False)
class Source:
    """Samples as arrays: the clients' with labels, the server's with labels that only an examiner may hold.

    N is the number of the clients' samples, M of the server's, C of classes.
    """

    name: str
    #: The clients' samples [N, ...]: uint8 images [N, H, W] or [N, H, W, channels], or numbers of any shape.
    x_train: Array = field(repr=False)
    #: Their classes [N], in 0..C-1.
    y_train: Labels = field(repr=False)
    #: The server's samples [M, ...], of the shape and kind of `x_train`.
    x_test: Array = field(repr=False)
    #: Their true classes [M] where they are known, -1 for a sample whose class is not. Nothing but an `Examiner` may
    #: be given them.
    y_test: Labels | None = field(repr=False)
    #: One name a class; their number is C.
    class_names: list[str]
    #: One name a sample of the server: a file's name, a row's id, else its index.
    ids: list[str] = field(repr=False)
    #: Who made the samples, where that is known.
    users: Users | None = field(default=None, repr=False)
    #: The samples are rows of indices (letters, words) and stay whole numbers.
    tokens: bool = False
    #: The samples are natural images: a mirrored or shifted one is of the same class.
    augments: bool = False
    #: The names of a table's features, where they have any.
    features: list[str] | None = field(default=None, repr=False)
    #: How the columns of a file became those features.
    columns: Columns | None = field(default=None, repr=False)

    @property
    def class_num(self) -> int:
        """The number of classes C."""
        return len(self.class_names)
