"""Frozen features of images as an .npz file: filters that are patches of the images, then a pool and a PCA.

    python benchmarks/evidence/patch_features.py cifar10_12k.npz cifar_features.npz

No label is used. 200 patches of 6x6 pixels, drawn from the clients' images, each centred and of norm 1, are convolved
with the images; what is positive and what is negative is averaged in 3x3 regions; a PCA keeps 128 numbers. Larger files
are cut to 10,000 images of the clients and 2000 of the server.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from sklearn.decomposition import PCA
from torch.nn import functional

_FILTERS, _SIZE, _REGIONS, _FEATURES = 200, 6, 3, 128
_ROWS = {"train": 10_000, "test": 2000}


def main(source: str, target: str) -> None:
    """Make the file."""
    file = np.load(source)
    arrays = {f"{kind}_{part}": file[f"{kind}_{part}"][:rows] for part, rows in _ROWS.items() for kind in "xy"}
    train, test = (_as_tensor(arrays[key]) for key in ("x_train", "x_test"))
    draw = np.random.default_rng(7)
    filters = torch.stack([_patch(train, draw) for _ in range(_FILTERS)])
    pca = PCA(_FEATURES, whiten=True, random_state=7)
    x_train = pca.fit_transform(_responses(train, filters)).astype(np.float32)
    x_test = pca.transform(_responses(test, filters)).astype(np.float32)
    np.savez_compressed(target, x_train=x_train, y_train=arrays["y_train"], x_test=x_test, y_test=arrays["y_test"])


def _as_tensor(images: np.ndarray) -> torch.Tensor:
    """[N, channels, height, width] in [0, 1]; grey images have one channel."""
    with_channels = images[..., None] if images.ndim == 3 else images
    return torch.from_numpy(with_channels).permute(0, 3, 1, 2).float() / 255


def _patch(images: torch.Tensor, draw: np.random.Generator) -> torch.Tensor:
    image, row, column = draw.integers(len(images)), *draw.integers(images.shape[-1] - _SIZE, size=2)
    patch = images[image, :, row : row + _SIZE, column : column + _SIZE]
    patch = patch - patch.mean()
    return patch / patch.norm().clamp(min=1e-3)


def _responses(images: torch.Tensor, filters: torch.Tensor) -> np.ndarray:
    parts = []
    for block in images.split(500):
        maps = functional.conv2d(block, filters)
        pooled = functional.adaptive_avg_pool2d(torch.cat([maps.relu(), (-maps).relu()], dim=1), _REGIONS)
        parts.append(pooled.flatten(1).sqrt())
    return torch.cat(parts).numpy()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
