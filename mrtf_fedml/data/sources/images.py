"""`dataset: images`: one subfolder per class for the clients, a folder of unlabelled images for the server.

All images are converted to one size and one number of channels.
"""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageOps

from ...config import DataSettings
from ...errors import UserError
from ..formatting import format_list
from .files import MemoryLimit, first_line, memory_limit, read_bytes
from .source import Labels, Source, make_source

logger = logging.getLogger("mrtf_fedml")

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")

#: Files that Windows writes into folders of images.
_SYSTEM_FILES = ("thumbs.db", "desktop.ini")

#: The formats that are decoded, whatever the suffix. Pillow has more, some of which start programs.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")

#: The formats in which Pillow's mode "I" has 16 bits; in others it has 32.
_SIXTEEN_BIT_FORMATS = ("PNG", "PPM")

#: Pillow's modes with one grey value per pixel.
_GREY_MODES = ("1", "L", "LA", "I", "F")

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class ImageFormat:
    """The size and the channels to which all images are converted."""

    height: int
    width: int
    is_grey: bool


def load_images(settings: DataSettings) -> Source:
    """The clients' images from `data_file`, one subfolder per class; the server's from the folder `server_file`.

    All are converted to one size (`image_size`, else the most frequent one of the clients') and to colour if any of
    the clients' images has colour. The classes are the names of the subfolders in alphabetical order.
    """
    clients, server = (image_folder(settings, key) for key in ("data_file", "server_file"))
    with _report_listing_errors(clients):
        entries = set(clients.iterdir())
        folders = {path for path in entries if path.is_dir()}
    class_names = sorted(path.name for path in folders if not path.name.startswith("."))
    if not class_names:
        raise UserError(
            f"folder {str(clients)!r} has no subfolder; put the images of each class into a folder with its name"
        )
    files_by_class = [list_images(clients / name) for name in class_names]
    files = [path for paths in files_by_class for path in paths]
    if not files:
        raise UserError(
            f"folder {str(clients)!r} has no image in its subfolders; supported are {format_list(SUFFIXES)}"
        )
    _warn_about_skipped_files(clients, entries - folders, "not in the subfolder of a class")
    limit = memory_limit(settings)
    image_format = common_format(files, settings.image_size, limit)
    x_test, y_test, ids = read_server_folder(server, image_format, class_names, limit)
    return make_source(
        clients.name,
        f"folder {str(clients)!r}",
        x_train=read_images(files, image_format, limit),
        y_train=np.repeat(np.arange(len(class_names)), [len(paths) for paths in files_by_class]),
        x_test=x_test,
        y_test=y_test,
        class_names=class_names,
        ids=ids,
    )


def read_server_folder(
    folder: Path, image_format: ImageFormat, class_names: list[str], limit: MemoryLimit
) -> tuple[Pixels, Labels | None, list[str]]:
    """The server's images [M, ...], their classes if the subfolders are named after classes, and their ids.

    An id is the path of the file in the folder. Images without subfolders are sorted by name. Subfolders may be
    classes, so images in subfolders are sorted by content, which is independent of the folders.
    """
    files = list_images(folder)
    if not files:
        raise UserError(f"folder {str(folder)!r} has no image for the server; supported are {format_list(SUFFIXES)}")
    if any(path.parent != folder for path in files):
        files = sort_by_content(files, limit)
    parents = [path.relative_to(folder).parts[0] for path in files]
    labels = None
    if set(parents) <= set(class_names):
        number = {name: index for index, name in enumerate(class_names)}
        labels = np.array([number[name] for name in parents], dtype=np.int64)
        logger.info("%r: its subfolders are the classes, which are used only to score predictions", str(folder))
    return read_images(files, image_format, limit), labels, [path.relative_to(folder).as_posix() for path in files]


def image_folder(settings: DataSettings, key: str) -> Path:
    """The folder `data_args.<key>`."""
    name = getattr(settings, key)
    content = "the clients' images, one subfolder per class" if key == "data_file" else "the server's images"
    if name is None:
        raise UserError(f"data_args.{key} is not set; set it to the folder with {content}")
    folder = Path(os.path.expanduser(name))
    if not folder.is_dir():
        problem = "is a file, not a folder" if folder.exists() else "does not exist"
        raise UserError(f"folder {str(folder)!r} {problem}; set data_args.{key} to the folder with {content}")
    return folder


def list_images(folder: Path) -> list[Path]:
    """The images of a folder and its subfolders, sorted by path, without hidden files.

    Other files are skipped with a warning, since the user may expect predictions for them.
    """
    with _report_listing_errors(folder):
        files = sorted(path for path in folder.rglob("*") if not path.is_dir() and not _is_hidden(path))
        images = [path for path in files if path.suffix.lower() in SUFFIXES and path.is_file()]
    _warn_about_skipped_files(
        folder, set(files) - set(images), f"not a supported image ({format_list(SUFFIXES)} are supported)"
    )
    return images


@contextmanager
def _report_listing_errors(folder: Path) -> Iterator[None]:
    """Convert errors of the block, which lists the folder, to a `UserError`."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"folder {str(folder)!r} cannot be listed ({error}); do not change it while it is read"
        ) from None


def _warn_about_skipped_files(folder: Path, files: Iterable[Path], reason: str) -> None:
    """Log the files of a folder that are not used, without hidden ones."""
    names = sorted(path.relative_to(folder) for path in files if not _is_hidden(path))
    if names:
        logger.warning("%r: skipped, %s: %s", str(folder), reason, format_list(names))


def _is_hidden(path: Path) -> bool:
    return path.name.startswith(".") or path.name.lower() in _SYSTEM_FILES


def sort_by_content(files: Sequence[Path], limit: MemoryLimit) -> list[Path]:
    """The files in the order of the hashes of their content, which is independent of names and folders.

    The server's samples must not be in the order of their classes, and a folder often is a class.
    """
    return sorted(files, key=lambda path: (hashlib.sha256(read_bytes(path, limit)).digest(), path))


def common_format(files: Sequence[Path], size: int | None, limit: MemoryLimit) -> ImageFormat:
    """The most frequent size (the first of several) unless `size` is given; grey only if every image is grey."""
    sizes: Counter[tuple[int, int]] = Counter()
    is_grey = True
    for path in files:
        with _open_image(path, limit) as image:
            sizes[_height_and_width(image)] += 1
            is_grey = is_grey and (image.mode in _GREY_MODES or image.mode.startswith("I;"))
    height, width = sizes.most_common(1)[0][0] if size is None else (size, size)
    return ImageFormat(height, width, is_grey)


def _height_and_width(image: Image.Image) -> tuple[int, int]:
    width, height = image.size
    # The EXIF orientation of a photograph may rotate it by 90 degrees.
    orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    is_rotated = isinstance(orientation, int) and 5 <= orientation <= 8
    return (width, height) if is_rotated else (height, width)


def read_images(files: Sequence[Path], image_format: ImageFormat, limit: MemoryLimit) -> Pixels:
    """The images [N, H, W], or [N, H, W, 3] for colour, as uint8."""
    shape = (len(files), image_format.height, image_format.width, *(() if image_format.is_grey else (3,)))
    limit.check_array(shape, 1, f"the {len(files)} images in {str(files[0].parent)!r} and related folders")
    images = np.empty(shape, dtype=np.uint8)
    for index, path in enumerate(files):
        with _open_image(path, limit) as image:
            images[index] = _convert_image(image, image_format)
    return images


def _convert_image(opened: Image.Image, image_format: ImageFormat) -> Pixels:
    image = ImageOps.exif_transpose(opened)
    if image.mode.startswith("I;16") or (image.mode == "I" and opened.format in _SIXTEEN_BIT_FORMATS):
        # Pillow would clip 65536 values at 255.
        image = Image.fromarray((np.asarray(image).clip(0, 65535).astype(np.uint16) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        # The file does not define which number is white, and Pillow would clip at 255.
        kind = "floating-point numbers" if image.mode == "F" else "32-bit integers"
        raise ValueError(f"its pixels are {kind} without a scale; save it with 8 or 16 bits per pixel")
    image = image.convert("L" if image_format.is_grey else "RGB")
    if image.size != (image_format.width, image_format.height):
        image = image.resize((image_format.width, image_format.height), Image.Resampling.BILINEAR)
    return np.asarray(image, dtype=np.uint8)


@contextmanager
def _open_image(path: Path, limit: MemoryLimit) -> Iterator[Image.Image]:
    """An image, of which only the header is read at first; every failure becomes a `UserError`."""
    try:
        with warnings.catch_warnings():
            # Warnings about large or unusual images; unreadable ones raise, and the limit is checked here.
            warnings.simplefilter("ignore")
            with Image.open(path, formats=FORMATS) as image:
                limit.check_array(image.size, 4, f"image {str(path)!r}")
                yield image
    except UserError:
        raise
    # For a damaged file Pillow's decoders raise exceptions without a common base class.
    except Exception as error:
        raise UserError(f"image {str(path)!r} cannot be read ({first_line(error)}); replace or remove it") from error
