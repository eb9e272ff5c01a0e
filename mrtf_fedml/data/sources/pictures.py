"""Image files to one array: same size, same channels, whatever the files were."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageOps

from ...errors import UserError
from ..listing import listed
from .memory import Memory
from .reading import first_line, read_bytes

logger = logging.getLogger("mrtf_fedml")

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")

#: What Windows leaves in folders of images.
_OF_THE_SYSTEM = ("thumbs.db", "desktop.ini")

#: What those files may be, whatever they are named. Pillow knows more formats, and some of them start programs.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")

#: Where Pillow's mode "I" stands for 16 bits; in others it is 32.
_SIXTEEN_BITS = ("PNG", "PPM")

#: Pillow's modes in which a pixel is one grey value.
_GREY = ("1", "L", "LA", "I", "F")

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Format:
    """What all images are brought to."""

    height: int
    width: int
    grey: bool


@contextmanager
def listing(folder: Path) -> Iterator[None]:
    """Whatever hinders the block, which lists the folder, in a sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(f"folder {str(folder)!r} cannot be listed ({error}); let it stand while it is read") from None


def image_files(folder: Path) -> list[Path]:
    """The images of a folder and of those below it, by name; hidden files are not looked at.

    What else lies there is passed over and told of: whoever put it there may wait for its label.
    """
    with listing(folder):
        seen = sorted(path for path in folder.rglob("*") if not path.is_dir() and not _is_hidden(path))
        images = [path for path in seen if path.suffix.lower() in SUFFIXES and path.is_file()]
    tell_passed_over(folder, set(seen) - set(images), f"no image that can be read ({listed(SUFFIXES)} are known)")
    return images


def tell_passed_over(folder: Path, files: Iterable[Path], what: str) -> None:
    """Tell of a folder's files that are not taken, and what they are; hidden ones are nobody's samples."""
    names = sorted(path.relative_to(folder) for path in files if not _is_hidden(path))
    if names:
        logger.warning("%r: passed over, as %s: %s", str(folder), what, listed(names))


def _is_hidden(path: Path) -> bool:
    return path.name.startswith(".") or path.name.lower() in _OF_THE_SYSTEM


def by_content(files: Sequence[Path], memory: Memory) -> list[Path]:
    """The files in an order that neither their names nor their folders have a part in: that of their bytes' hash.

    Samples that a server is to label must not come in the order of their classes, and a folder often is one.
    """
    return sorted(files, key=lambda path: (_digest(path, memory), path))


def _digest(path: Path, memory: Memory) -> bytes:
    return hashlib.sha256(read_bytes(path, memory)).digest()


def common_format(files: Sequence[Path], size: int | None, memory: Memory) -> Format:
    """The commonest size, the first of equals, unless `size` is given; grey only where every image is grey."""
    sizes: Counter[tuple[int, int]] = Counter()
    grey = True
    for path in files:
        with _opened(path, memory) as image:
            sizes[_height_and_width(image)] += 1
            grey = grey and (image.mode in _GREY or image.mode.startswith("I;"))
    height, width = sizes.most_common(1)[0][0] if size is None else (size, size)
    return Format(height, width, grey)


def _height_and_width(image: Image.Image) -> tuple[int, int]:
    width, height = image.size
    # A photograph may lie on its side, with a note of how to turn it.
    note = image.getexif().get(ExifTags.Base.Orientation, 1)
    turned = isinstance(note, int) and 5 <= note <= 8
    return (width, height) if turned else (height, width)


def read_images(files: Sequence[Path], picture_format: Format, memory: Memory) -> Pixels:
    """The images [N, H, W], or [N, H, W, 3] for colour, as bytes."""
    shape = (len(files), picture_format.height, picture_format.width, *(() if picture_format.grey else (3,)))
    memory.check_array(shape, 1, f"the {len(files)} images in {str(files[0].parent)!r} and beside it")
    images = np.empty(shape, dtype=np.uint8)
    for position, path in enumerate(files):
        with _opened(path, memory) as image:
            images[position] = _pixels(image, picture_format)
    return images


def _pixels(opened: Image.Image, picture_format: Format) -> Pixels:
    image = ImageOps.exif_transpose(opened)
    if image.mode.startswith("I;16") or (image.mode == "I" and opened.format in _SIXTEEN_BITS):
        # Pillow would cut off at 255 what has 65535 steps.
        image = Image.fromarray((np.asarray(image).clip(0, 65535).astype(np.uint16) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        # Nothing in the file says which number is white, and Pillow would cut off at 255.
        kind = "fractions" if image.mode == "F" else "whole numbers of 32 bits"
        raise ValueError(f"its pixels are {kind} without a scale; save it with 8 or 16 bits a pixel")
    image = image.convert("L" if picture_format.grey else "RGB")
    if image.size != (picture_format.width, picture_format.height):
        image = image.resize((picture_format.width, picture_format.height), Image.Resampling.BILINEAR)
    return np.asarray(image, dtype=np.uint8)


@contextmanager
def _opened(path: Path, memory: Memory) -> Iterator[Image.Image]:
    """An image, of which only the header is read at first; whatever is wrong with it becomes a sentence."""
    try:
        with warnings.catch_warnings():
            # Of large images and odd ones; what cannot be read raises, and what is too large is refused here.
            warnings.simplefilter("ignore")
            with Image.open(path, formats=FORMATS) as image:
                memory.check_array(image.size, 4, f"image {str(path)!r}")
                yield image
    except UserError:
        raise
    # On a damaged file Pillow raises whatever its decoders stumble on first, of no common kind.
    except Exception as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: BaseException) -> UserError:
    return UserError(f"image {str(path)!r} cannot be read ({first_line(error)}); replace it or take it out")
