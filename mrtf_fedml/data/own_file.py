"""A party's own samples, in a file that only this party has: `own_data_file`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import UserError
from .sources import Source, checked_source
from .sources.checks import check_inputs
from .sources.memory import Memory
from .sources.npz_arrays import read_npz

_SILO = ("x_train", "y_train", "class_names")
_SERVER = ("x_test", "class_names")


def read_own_file(name: str, rank: int, memory: Memory) -> Source:
    """The .npz file of the party of this rank; `{rank}` in its name stands for the number.

    A silo's holds x_train, y_train and class_names; the server's x_test and class_names, and ids and y_test where it
    has them. The names must be the same for all: they say which class is which, also to those who hold none of it.
    """
    path = Path(name.replace("{rank}", str(rank))).expanduser()
    origin = f"data_args.own_data_file {str(path)!r}"
    if not path.is_file():
        raise UserError(f"{origin} does not exist; write it with numpy.savez, or correct the path")
    needed, optional = (_SERVER, ("ids", "y_test")) if rank == 0 else (_SILO, ())
    arrays = read_npz(path, origin, memory, needed, optional)
    half = "x_test" if rank == 0 else "x_train"
    check_inputs(origin, half, arrays[half])
    if rank == 0:
        # The checks are for both halves of a source; the half that a party lacks is stood in for by a row of the other.
        arrays |= {"x_train": arrays["x_test"][:1], "y_train": np.zeros(1, dtype=np.int64)}
    else:
        arrays |= {"x_test": arrays["x_train"][:1]}
    is_server = rank == 0
    return checked_source(
        path.stem,
        origin,
        x_train=arrays["x_train"],
        y_train=arrays["y_train"],
        x_test=arrays["x_test"],
        class_names=arrays["class_names"],
        y_test=arrays.get("y_test") if is_server else None,
        ids=arrays.get("ids") if is_server else None,
    )
