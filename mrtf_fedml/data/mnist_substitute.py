"""Writes scikit-learn's digits in the files in which FedML's own loader expects MNIST.

    python -m mrtf_fedml.data.mnist_substitute FOLDER --clients N

FedML downloads MNIST, partitioned by writers in LEAF's format. Without a network, scikit-learn's digits, enlarged to
MNIST's 28x28 pixels, let a FedML project run: `dataset: mnist`, `data_cache_dir: FOLDER`.
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

from ..config import DataSettings
from ..errors import UserError
from .sources.digits import load_digits
from .sources.source import Array

#: Each writer gets this many pieces of the digits sorted by class: about three classes, as in the quickstart.
_PIECES = 3


def write_mnist_substitute(folder: Path, clients: int) -> bool:
    """Write FOLDER/MNIST with this many writers; returns False if it exists already."""
    if (folder / "MNIST").exists() or (folder / "MNIST.zip").exists():
        return False
    source = load_digits(DataSettings())
    if not 1 <= clients <= len(source.y_train) // _PIECES:
        raise UserError(f"--clients is {clients}; the digits suffice for 1 to {len(source.y_train) // _PIECES}")
    pieces = np.array_split(np.argsort(source.y_train, kind="stable"), _PIECES * clients)
    train = [np.concatenate(pieces[writer::clients]) for writer in range(clients)]
    assert source.y_test is not None, "scikit-learn's digits have labels"
    test = np.array_split(np.arange(len(source.y_test)), clients)
    _write_leaf_file(folder / "MNIST" / "train", source.x_train, source.y_train, train)
    _write_leaf_file(folder / "MNIST" / "test", source.x_test, source.y_test, test)
    # FedML downloads the archive unless it exists; it does not open it if its content is there.
    (folder / "MNIST.zip").touch()
    return True


def _write_leaf_file(
    folder: Path, images: Array, labels: npt.NDArray[np.int64], rows: list[npt.NDArray[np.int64]]
) -> None:
    """One file in LEAF's format: `users`, `num_samples` and each user's `x` and `y`."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this module."""
    parser = argparse.ArgumentParser(prog="python -m mrtf_fedml.data.mnist_substitute", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, required=True, help="the number of writers")
    options = parser.parse_args(arguments)
    try:
        is_written = write_mnist_substitute(options.folder, options.clients)
    except (UserError, OSError) as error:
        print(f"mnist_substitute: {error}", file=sys.stderr)
        return 2
    message = "wrote scikit-learn's digits as MNIST" if is_written else "MNIST or its substitute exists already"
    print(f"{options.folder}: {message}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
