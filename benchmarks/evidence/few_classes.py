"""Make an .npz file whose server set has only the most frequent classes.

    python benchmarks/evidence/few_classes.py mnist.npz 3 mnist_3.npz

The clients' samples (x_train, y_train) do not change; of x_test and y_test the samples of the 3 most frequent
classes are kept. Labels are read only here; a run reads none.
"""

from __future__ import annotations

import sys

import numpy as np


def main(source: str, classes: str, target: str) -> None:
    """Write `target`: `source` with this many classes on the server."""
    with np.load(source) as arrays:
        kept = {name: arrays[name] for name in ("x_train", "y_train")}
        images, labels = arrays["x_test"], arrays["y_test"]
    frequent = np.argsort(-np.bincount(labels), kind="stable")[: int(classes)]
    left = np.isin(labels, frequent)
    np.savez_compressed(target, **kept, x_test=images[left], y_test=labels[left])
    print(f"{target}: {left.sum()} of {len(labels)} server samples, of the classes {sorted(frequent.tolist())}")


if __name__ == "__main__":
    main(*sys.argv[1:])
