"""A server that sees few of the classes: an .npz file whose server's set keeps only its most frequent ones.

    python benchmarks/fewer_classes.py mnist.npz 3 mnist_3.npz

The clients' samples (x_train, y_train) stay as they are; of x_test and y_test the samples of the 3 most frequent
classes are left. Labels are read here, where a scene is made; a run on it reads none.
"""

from __future__ import annotations

import sys

import numpy as np


def main(source: str, classes: str, target: str) -> None:
    """Write `target`: `source` with so many classes left on the server."""
    with np.load(source) as arrays:
        kept = {name: arrays[name] for name in ("x_train", "y_train")}
        images, labels = arrays["x_test"], arrays["y_test"]
    frequent = np.argsort(-np.bincount(labels), kind="stable")[: int(classes)]
    left = np.isin(labels, frequent)
    np.savez_compressed(target, **kept, x_test=images[left], y_test=labels[left])
    print(f"{target}: {left.sum()} of {len(labels)} server samples, of the classes {sorted(frequent.tolist())}")


if __name__ == "__main__":
    main(*sys.argv[1:])
