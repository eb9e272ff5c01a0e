"""Letters and digits by typeface, a stand-in for FEMNIST by writer: a user is a typeface, 62 classes, as one .npz file.

    python benchmarks/evidence/glyphs.py /usr/share/fonts glyphs.npz
    python benchmarks/evidence/glyphs.py /usr/share/fonts glyphs_equal.npz equal

220 typefaces of 60 to 100 samples, and 2000 samples of the others for the server, dark on white, 28 x 28. As in
FEMNIST half of the samples are digits, capitals are a little more frequent than small letters, a letter's frequency
falls with its rank, and each character fills its box, so that o, O and 0 or c and C look alike. With `equal` all
classes are alike in frequency. `typefaces.py` says which fonts are taken.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
from PIL import Image
from typefaces import CHARACTERS, Glyphs, typefaces

USERS, FEWEST, MOST, SERVERS, SIDE = 220, 60, 100, 2000, 28
#: The shares of digits, capitals and small letters, and the letters from frequent to rare.
SHARES, FREQUENT = (0.5, 0.27, 0.23), "etaoinshrdlcumwfgypbvkjxqz"


def class_frequencies(equal: bool) -> npt.NDArray[np.float64]:
    """How often each of the 62 characters is written, [62]."""
    if equal:
        return np.full(len(CHARACTERS), 1 / len(CHARACTERS))
    ranks = np.array([FREQUENT.index(letter) for letter in sorted(FREQUENT)])
    letters = 1 / (ranks + 3)
    letters /= letters.sum()
    return np.concatenate([np.full(10, SHARES[0] / 10), SHARES[1] * letters, SHARES[2] * letters])


def placed(glyph: Image.Image, rng: np.random.Generator, side: int, fill: float) -> Image.Image:
    """The glyph, turned a little, its longer side about `fill` of the image's, near the middle; white on black."""
    turned = glyph.rotate(rng.uniform(-10, 10), Image.Resampling.BILINEAR, expand=True)
    turned = turned.crop(turned.getbbox())
    scale = fill * side * rng.uniform(0.8, 1.1) / max(turned.size)
    width, height = (max(2, round(length * scale)) for length in turned.size)
    small = turned.resize((min(width, side), min(height, side)), Image.Resampling.BOX)
    image = Image.new("L", (side, side))
    left, top = ((side - length) // 2 + int(rng.integers(-2, 3)) for length in small.size)
    image.paste(small, (left, top))
    return image


def written(glyphs: Glyphs, labels: npt.NDArray[np.int64], rng: np.random.Generator) -> list[npt.NDArray[np.uint8]]:
    """A sample of each label in this typeface, dark on white."""
    samples = []
    for label in labels:
        ink = np.asarray(placed(glyphs[CHARACTERS[label]], rng, SIDE, 0.75), dtype=np.float64)
        samples.append((255 - ink * rng.uniform(0.7, 1)).astype(np.uint8))
    return samples


def main(folder: str, out: str, shares: str = "as FEMNIST") -> None:
    """Make the file."""
    rng = np.random.default_rng(7)
    faces = typefaces(folder)
    if len(faces) < USERS + 20:
        sys.exit(f"{len(faces)} typefaces in {folder}: {USERS} users and 20 for the server are needed; install more")
    names = rng.permutation(np.array(list(faces)))
    frequency = class_frequencies(shares == "equal")
    x_train, y_train, users = [], [], []
    for name in names[:USERS]:
        labels = rng.choice(len(CHARACTERS), size=rng.integers(FEWEST, MOST + 1), p=frequency)
        x_train += written(faces[name], labels, rng)
        y_train.append(labels)
        users += [name] * len(labels)
    others, y_test = names[USERS:], rng.choice(len(CHARACTERS), size=SERVERS, p=frequency)
    x_test = [written(faces[rng.choice(others)], y_test[place : place + 1], rng)[0] for place in range(SERVERS)]
    np.savez_compressed(
        out, x_train=x_train, y_train=np.concatenate(y_train), u_train=users, x_test=x_test, y_test=y_test,
        class_names=list(CHARACTERS),
    )  # fmt: skip
    print(f"{out}: {len(x_train)} samples of {USERS} typefaces, {SERVERS} for the server of {len(others)} others")


if __name__ == "__main__":
    main(*sys.argv[1:])
