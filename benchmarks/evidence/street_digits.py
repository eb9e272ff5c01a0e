"""Digits as on house walls, a stand-in for SVHN: colours, textures, neighbours at the sides, as one .npz file.

    python benchmarks/evidence/street_digits.py /usr/share/fonts street_digits.npz

10000 samples for the clients and 2000 for the server, 32 x 32 x 3, by the typefaces that `typefaces.py` finds. The
classes have SVHN's shares (19 % are ones, 6 % nines). A sample has the digit in the middle and, as there, often parts
of the next digits of the house number left and right, which are not what is asked for; ink and wall differ by little
or much, either may be the lighter; then blur, a light from one side, and noise.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
from glyphs import placed
from PIL import Image, ImageFilter
from typefaces import Glyphs, typefaces

CLIENTS, SERVERS, SIDE = 10000, 2000, 32
#: SVHN's training samples of the classes 0 to 9.
COUNTS = np.array([4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659])
#: Plainer typefaces than a writer's: so many of the glyphs look most like the mean one of their character.
PLAIN = 0.6
#: How far ink and wall differ at least and at most, of 255; how much noise there is at most.
CONTRAST, NOISE = (50, 170), 10

Floats = npt.NDArray[np.float64]


def ramp(rng: np.random.Generator) -> Floats:
    """A slope of -1 to 1 over the image in some direction, [SIDE, SIDE, 1]."""
    angle = rng.uniform(0, 2 * np.pi)
    along = np.linspace(-1, 1, SIDE)
    slope = np.cos(angle) * along[None, :] + np.sin(angle) * along[:, None]
    return (slope / np.abs(slope).max())[..., None]


def wall(rng: np.random.Generator, colour: Floats) -> Floats:
    """A wall of about this colour: coarse stains and, on every third, the joints of bricks or boards."""
    coarse = rng.normal(0, rng.uniform(0, 22), size=(5, 5, 3)) + colour
    stains = Image.fromarray(np.clip(coarse, 0, 255).astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    image = np.asarray(stains, dtype=np.float64).copy()
    if rng.random() < 1 / 3:
        step = int(rng.integers(5, 13))
        joints = slice(int(rng.integers(step)), None, step)
        image[joints if rng.random() < 0.5 else (slice(None), joints)] += rng.uniform(-40, 40)
    return image


def ink(glyphs: Glyphs, digit: int, rng: np.random.Generator) -> Floats:
    """How much paint is on each pixel, [SIDE, SIDE, 1]: the digit, and with two chances of three a neighbour a side."""
    paint = placed(glyphs[str(digit)], rng, SIDE, 0.8)
    for side in (-1, 1):
        if rng.random() < 2 / 3:
            next_to = placed(glyphs[str(rng.integers(10))], rng, SIDE, 0.8)
            away = side * int(rng.integers(17, 25))
            shifted = Image.new("L", (SIDE, SIDE))
            shifted.paste(next_to, (away, int(rng.integers(-2, 3))))
            paint = Image.fromarray(np.maximum(np.asarray(paint), np.asarray(shifted)))
    return np.asarray(paint, dtype=np.float64)[..., None] / 255


def painted(glyphs: Glyphs, digit: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """A sample, [SIDE, SIDE, 3]."""
    colour = np.clip(rng.uniform(40, 215) + rng.normal(0, 25, size=3), 20, 235)
    towards = rng.choice([-1.0, 1.0]) * np.ones(3) + rng.normal(0, 0.4, size=3)
    paint = colour + rng.uniform(*CONTRAST) * towards / np.abs(towards).max()
    share = ink(glyphs, digit, rng)
    seen = (1 - share) * wall(rng, colour) + share * paint + rng.uniform(0, 40) * ramp(rng)
    blurred = Image.fromarray(np.clip(seen, 0, 255).astype(np.uint8))
    blurred = blurred.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.2)))
    noisy = np.asarray(blurred, dtype=np.float64) + rng.normal(0, rng.uniform(0, NOISE), size=(SIDE, SIDE, 3))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def main(folder: str, out: str) -> None:
    """Make the file."""
    rng = np.random.default_rng(7)
    faces = list(typefaces(folder, PLAIN).values())
    labels = rng.choice(10, size=CLIENTS + SERVERS, p=COUNTS / COUNTS.sum())
    images = np.stack([painted(faces[rng.integers(len(faces))], int(digit), rng) for digit in labels])
    np.savez_compressed(
        out, x_train=images[:CLIENTS], y_train=labels[:CLIENTS], x_test=images[CLIENTS:], y_test=labels[CLIENTS:]
    )
    print(f"{out}: {CLIENTS} samples for the clients, {SERVERS} for the server, of {len(faces)} typefaces")


if __name__ == "__main__":
    main(*sys.argv[1:])
