"""Image files to one array: same size, same channels, whatever the files were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from ...errors import UserError
from .reading import UNREADABLE, first_line

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")

#: Pillow's modes in which a pixel is one grey value.
_GREY = ("1", "L", "LA", "I", "F")

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Format:
    """What all images are brought to."""

    height: int
    width: int
    grey: bool


def image_files(folder: Path) -> list[Path]:
    """The images of a folder and of those below it, by name; hidden files are not looked at."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.is_file() and not path.name.startswith(".")
    )


def common_format(files: Sequence[Path], size: int | None) -> Format:
    """The commonest size, the first of equals, unless `size` is given; grey only where every image is grey."""
    sizes: Counter[tuple[int, int]] = Counter()
    grey = True
    for path in files:
        with _opened(path) as image:
            sizes[_height_and_width(path, image)] += 1
            grey = grey and (image.mode in _GREY or image.mode.startswith("I;"))
    height, width = sizes.most_common(1)[0][0] if size is None else (size, size)
    return Format(height, width, grey)


def _height_and_width(path: Path, image: Image.Image) -> tuple[int, int]:
    width, height = image.size
    try:
        # A photograph may lie on its side, with a note of how to turn it.
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
    except (*UNREADABLE, SyntaxError) as error:
        raise _unreadable(path, error) from error
    return (width, height) if turned else (height, width)


def read_images(files: Sequence[Path], form: Format) -> Pixels:
    """The images [N, H, W], or [N, H, W, 3] for colour, as bytes."""
    shape = (form.height, form.width) if form.grey else (form.height, form.width, 3)
    images = np.empty((len(files), *shape), dtype=np.uint8)
    for position, path in enumerate(files):
        images[position] = _read(path, form)
    return images


def _read(path: Path, form: Format) -> Pixels:
    with _opened(path) as opened:
        try:
            image = ImageOps.exif_transpose(opened)
            if image.mode.startswith("I;16"):
                # Pillow would cut off at 255 what has 65535 steps.
                image = Image.fromarray((np.asarray(image, dtype=np.uint16) >> 8).astype(np.uint8))
            image = image.convert("L" if form.grey else "RGB")
            if image.size != (form.width, form.height):
                image = image.resize((form.width, form.height), Image.Resampling.BILINEAR)
            return np.asarray(image, dtype=np.uint8)
        except (*UNREADABLE, SyntaxError) as error:
            raise _unreadable(path, error) from error


def _opened(path: Path) -> Image.Image:
    try:
        return Image.open(path)
    except (*UNREADABLE, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: BaseException) -> UserError:
    return UserError(f"image {str(path)!r} cannot be read ({first_line(error)}); replace it or take it out")
