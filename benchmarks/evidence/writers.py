"""Made-up writers: images of two sets, each writer with a style and a taste of classes of his own, as one .npz file.

    python benchmarks/evidence/writers.py MNIST.npz FASHION.npz writers.npz

Feature skew and unequal classes in one, split by user. Both inputs hold x_train (N, 28, 28) uint8 and y_train; the
classes of the second are numbered after those of the first. 200 writers of 60 samples, and 2000 samples of 60 other
writers for the server.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Images = npt.NDArray[np.uint8]

WRITERS, THEIRS, OTHERS, SERVERS = 200, 60, 60, 2000
#: How fast classes get rarer, and how much writers differ in their taste.
POWER, TASTE = 0.8, 0.7


class Writer:
    """A way to write, and a taste of classes."""

    def __init__(self, rng: np.random.Generator, shares: npt.NDArray[np.float64]) -> None:
        self.angle = rng.uniform(-25, 25)
        self.shift = rng.integers(-2, 3, size=2)
        self.gamma = rng.uniform(0.6, 1.8)
        self.pen = int(rng.integers(-1, 2))
        self.light = rng.uniform(0.5, 1)
        self.taste = rng.dirichlet(shares * len(shares) * TASTE)

    def write(self, image: Images) -> Images:
        """The image in this writer's hand."""
        drawn: Any = ndimage.rotate(image.astype(float), self.angle, reshape=False, order=1)
        if self.pen:
            drawn = (ndimage.grey_dilation if self.pen > 0 else ndimage.grey_erosion)(drawn, size=(2, 2))
        drawn = np.clip(ndimage.shift(drawn, self.shift, order=0), 0, 255) / 255
        return np.clip(255 * drawn**self.gamma * self.light, 0, 255).astype(np.uint8)


def main(first: str, second: str, out: str) -> None:
    """Make the file."""
    rng = np.random.default_rng(7)
    one, two = np.load(first), np.load(second)
    images = np.concatenate([one["x_train"], two["x_train"]])
    after = int(one["y_train"].max()) + 1
    labels = np.concatenate([one["y_train"].astype(int), two["y_train"].astype(int) + after])
    by_class = [np.flatnonzero(labels == place) for place in range(labels.max() + 1)]
    shares = 1 / np.arange(1, len(by_class) + 1) ** POWER
    shares = rng.permutation(shares / shares.sum())

    def written(writers: int, samples: int) -> tuple[Images, npt.NDArray[np.int64], list[str]]:
        drawn, classes, names = [], [], []
        for place in range(writers):
            writer = Writer(rng, shares)
            for label in rng.choice(len(by_class), size=samples, p=writer.taste):
                drawn.append(writer.write(images[rng.choice(by_class[label])]))
                classes.append(label)
                names.append(f"writer {place}")
        return np.array(drawn), np.array(classes), names

    x_train, y_train, users = written(WRITERS, THEIRS)
    x_test, y_test, _ = written(OTHERS, -(-SERVERS // OTHERS))
    kept = rng.permutation(len(x_test))[:SERVERS]
    np.savez(out, x_train=x_train, y_train=y_train, u_train=users, x_test=x_test[kept], y_test=y_test[kept])


if __name__ == "__main__":
    main(*sys.argv[1:4])
