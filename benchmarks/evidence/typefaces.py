"""Typefaces with digits and Latin letters among a folder's font files: one per family, no pictures, no two alike.

Debian's fonts-* packages are such a folder (/usr/share/fonts); fonts-aenigma alone has some 460 files.
"""

from __future__ import annotations

import string
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFont

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
#: A font has no such letter, so it shows what it draws for letters that it lacks.
LACKING = "\U0010fffd"
#: Glyphs are drawn this high, and compared as thumbnails.
SIZE, THUMB = 48, 12
#: Two typefaces are alike where their thumbnails differ by less than this per pixel (of 1), on average.
ALIKE = 0.05
#: In a font of symbols fewer of the glyphs look most like the mean glyph of their character.
LETTERS = 0.35

Glyphs = dict[str, Image.Image]


def drawn(font: ImageFont.FreeTypeFont, character: str) -> Image.Image | None:
    """The character's ink (white on black), cropped to it; None where there is none."""
    left, top, right, bottom = (round(side) for side in font.getbbox(character))
    if not (0 < right - left < 8 * SIZE and 0 < bottom - top < 8 * SIZE):
        return None
    mask = font.getmask(character)
    image = Image.frombytes("L", mask.size, bytes(mask))
    box = image.getbbox()
    return image.crop(box) if box else None


def glyphs_of(file: Path) -> tuple[str, Glyphs] | None:
    """A font file's family and its 62 glyphs; None where some lack, or small letters are only small capitals."""
    try:
        font = ImageFont.truetype(str(file), SIZE)
        lacking = bytes(font.getmask(LACKING))
        glyphs = {character: drawn(font, character) for character in CHARACTERS}
        without = any(bytes(font.getmask(character)) == lacking for character in "09AZaz")
    except OSError:
        return None
    found = {character: glyph for character, glyph in glyphs.items() if glyph is not None}
    if without or len(found) < len(CHARACTERS):
        return None
    thumbs = {character: thumb(found[character]) for character in "abegABEG"}
    if sum(np.abs(thumbs[small] - thumbs[small.upper()]).mean() < ALIKE for small in "abeg") > 1:
        return None
    return str(font.getname()[0]), found


def thumb(glyph: Image.Image) -> npt.NDArray[np.float64]:
    """A glyph as [THUMB, THUMB] of 0 to 1, stretched to fill it."""
    return np.asarray(glyph.resize((THUMB, THUMB), Image.Resampling.BOX), dtype=np.float64) / 255


def typefaces(folder: str, plain: float = LETTERS) -> dict[str, Glyphs]:
    """The family's name -> its 62 glyphs, of every font file below the folder, in the order of the files' names."""
    files = sorted(file for file in Path(folder).rglob("*") if file.suffix.lower() in (".ttf", ".otf"))
    # Of a family's files the plain one has the shortest name, and comes first.
    files.sort(key=lambda file: (len(file.stem), file.stem))
    faces: dict[str, Glyphs] = {}
    looks: list[npt.NDArray[np.float64]] = []
    for file in files:
        found = glyphs_of(file)
        if found is None or found[0] in faces:
            continue
        look = np.stack([thumb(found[1][character]) for character in CHARACTERS])
        if any(np.abs(look - other).mean() < ALIKE for other in looks):
            continue
        faces[found[0]] = found[1]
        looks.append(look)
    return plain_ones(faces, np.stack(looks), plain)


def plain_ones(faces: dict[str, Glyphs], looks: npt.NDArray[np.float64], plain: float) -> dict[str, Glyphs]:
    """Those in which more than this share of the glyphs look most like the mean glyph of their character."""
    means = looks.mean(0).reshape(len(CHARACTERS), -1)
    folded = np.array([CHARACTERS.lower().index(character) for character in CHARACTERS.lower()])
    kept = {}
    for (family, glyphs), look in zip(faces.items(), looks, strict=True):
        distances = ((look.reshape(len(CHARACTERS), 1, -1) - means) ** 2).sum(2)
        if (folded[distances.argmin(1)] == folded).mean() > plain:
            kept[family] = glyphs
    return dict(sorted(kept.items()))
