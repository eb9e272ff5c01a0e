"""Digits that need no download, in the files where FedML's own loader looks for MNIST.

    python -m mrtf_fedml.data.stand_in FOLDER --clients N

FedML fetches MNIST, cut up by writers in LEAF's form. Where it cannot, scikit-learn's digits, enlarged to MNIST's 28x28
pixels, let a FedML project run all the same: `dataset: mnist`, `data_cache_dir: FOLDER`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UserError
from ..settings import DataSettings
from .sources.digits import load_digits
from .sources.source import Array

#: Each writer's share of the sorted digits is so many pieces: a writer knows about three classes, as in the quickstart.
_PIECES = 3


def write_stand_in(folder: Path, clients: int) -> bool:
    """Write FOLDER/MNIST with so many writers; whether it was written, which it is not where there is one already."""
    if (folder / "MNIST").exists() or (folder / "MNIST.zip").exists():
        return False
    source = load_digits(DataSettings())
    if not 1 <= clients <= len(source.y_train) // _PIECES:
        raise UserError(f"--clients is {clients}; there are digits for 1 to {len(source.y_train) // _PIECES}")
    pieces = np.array_split(np.argsort(source.y_train, kind="stable"), _PIECES * clients)
    train = [np.concatenate(pieces[writer::clients]) for writer in range(clients)]
    assert source.y_test is not None, "scikit-learn tells the digits' classes"
    test = np.array_split(np.arange(len(source.y_test)), clients)
    _write(folder / "MNIST" / "train", source.x_train, source.y_train, train)
    _write(folder / "MNIST" / "test", source.x_test, source.y_test, test)
    # FedML fetches the archive unless it is there; it does not open one that stands beside its content.
    (folder / "MNIST.zip").touch()
    return True


def _write(folder: Path, images: Array, labels: npt.NDArray[np.int64], rows: list[npt.NDArray[np.int64]]) -> None:
    """One file as LEAF writes it: `users`, `num_samples` and each user's `x` and `y`."""
    large = np.pad(np.kron(images, np.ones((1, 3, 3), np.uint8)), ((0, 0), (2, 2), (2, 2)))
    pixels = (large.reshape(len(large), -1) / 255).round(3)
    # FedML sorts the writers by name.
    users = [f"writer{index:04d}" for index in range(len(rows))]
    content: dict[str, Any] = {
        "users": users,
        "num_samples": [len(own) for own in rows],
        "user_data": {
            user: {"x": pixels[own].tolist(), "y": labels[own].tolist()} for user, own in zip(users, rows, strict=True)
        },
    }
    folder.mkdir(parents=True)
    (folder / "all_data.json").write_text(json.dumps(content))


def main(words: Sequence[str] | None = None) -> int:
    """The command line of this module."""
    parser = argparse.ArgumentParser(prog="python -m mrtf_fedml.data.stand_in", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, required=True, help="how many writers")
    options = parser.parse_args(words)
    try:
        written = write_stand_in(options.folder, options.clients)
    except (UserError, OSError) as error:
        print(f"stand_in: {error}", file=sys.stderr)
        return 2
    what = (
        "scikit-learn's digits stand in for MNIST" if written else "MNIST, or what stands in for it, is there already"
    )
    print(f"{options.folder}: {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
