"""scikit-learn's wine and breast cancer as .npz files: small tables, standardised by the clients' rows.

    python benchmarks/evidence/small_tables.py [FOLDER]

wine.npz has 60 of 178 rows for the server, cancer.npz 150 of 569.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_wine


def main(folder: str = ".") -> None:
    """Make both files."""
    for name, load, rows in (("wine", load_wine, 60), ("cancer", load_breast_cancer, 150)):
        x, y = load(return_X_y=True)
        order = np.random.default_rng(7).permutation(len(x))
        server, clients = order[:rows], order[rows:]
        centre, width = x[clients].mean(axis=0), x[clients].std(axis=0)
        standard = ((x - centre) / width).astype(np.float32)
        np.savez_compressed(
            Path(folder) / f"{name}.npz",
            x_train=standard[clients],
            y_train=y[clients],
            x_test=standard[server],
            y_test=y[server],
        )
        print(f"{name}.npz: {len(clients)} rows for the clients, {rows} for the server")


if __name__ == "__main__":
    main(*sys.argv[1:])
