"""`dataset: npz`: a user's own arrays, as NumPy's `savez` writes them."""

from __future__ import annotations

import logging
import zipfile
import zlib
from pathlib import Path

import numpy as np

from ...errors import UserError
from ...settings import DataSettings
from .checks import checked_source
from .source import Array, Source

logger = logging.getLogger("mrtf_fedml")

REQUIRED = ("x_train", "y_train", "x_test")
OPTIONAL = ("y_test", "class_names", "ids")

#: What NumPy and zipfile raise for a file that is cut off, damaged, or of another format.
_UNREADABLE = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error)


def load_npz(settings: DataSettings) -> Source:
    """The arrays of `data_file`: x_train, y_train, x_test and, where they exist, y_test, class_names, ids.

    Nothing is unpickled: an array of Python objects is refused.
    """
    if settings.data_file is None:
        raise UserError("data_args.dataset is npz but data_args.data_file is not given; name the .npz file there")
    path = Path(settings.data_file).expanduser()
    arrays = _read(path)
    source = checked_source(path.stem, f"data file {str(path)!r}", **arrays)
    if source.x_train.dtype == np.uint8 and source.x_train.ndim == 2:
        logger.warning(
            "%s: x_train holds rows of uint8, taken as plain numbers and not scaled; give images as N,H,W",
            path,
        )
    return source


def _read(path: Path) -> dict[str, Array]:
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise UserError(f"data file {str(path)!r} {what}; correct data_args.data_file")
    try:
        archive = np.load(path, allow_pickle=False)
    except _UNREADABLE as error:
        raise UserError(
            f"data file {str(path)!r} cannot be read as an .npz file ({_first_line(error)}); "
            "write it again with numpy.savez"
        ) from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise UserError(
            f"data file {str(path)!r} holds a single array; write one .npz file with numpy.savez(file, "
            "x_train=..., y_train=..., x_test=...)"
        )
    with archive:
        held = list(archive.files)
        for key in REQUIRED:
            if key not in held:
                raise UserError(
                    f"data file {str(path)!r} has no array {key!r} (it holds {', '.join(held) or 'none'}); "
                    f"add it with numpy.savez(file, {key}=..., ...)"
                )
        return {key: _array(path, archive, key) for key in (*REQUIRED, *OPTIONAL) if key in held}


def _array(path: Path, archive: np.lib.npyio.NpzFile, key: str) -> Array:
    try:
        return np.asarray(archive[key])
    except _UNREADABLE as error:
        raise UserError(
            f"data file {str(path)!r}: array {key!r} cannot be read ({_first_line(error)}); "
            "write plain numbers and texts, again with numpy.savez"
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
