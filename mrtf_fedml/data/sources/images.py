"""`dataset: images`: a folder a class for the clients, a flat folder of unlabelled images for the server."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from ...errors import UserError
from ...settings import DataSettings
from ..listing import listed
from .checks import checked_source
from .memory import Memory, memory_of
from .pictures import (
    SUFFIXES,
    Format,
    Pixels,
    by_content,
    common_format,
    image_files,
    listing,
    read_images,
    tell_passed_over,
)
from .source import Labels, Source

logger = logging.getLogger("mrtf_fedml")


def load_images(settings: DataSettings) -> Source:
    """The clients' images from `data_file`, one subfolder a class; the server's from the folder `server_file`.

    All are brought to one size (`image_size`, else the commonest of the clients') and to colour where any
    of the clients' has colour. The classes are the subfolders' names in alphabetical order.
    """
    clients, server = (folder_of(settings, key) for key in ("data_file", "server_file"))
    with listing(clients):
        within = set(clients.iterdir())
        folders = {path for path in within if path.is_dir()}
    class_names = sorted(path.name for path in folders if not path.name.startswith("."))
    if not class_names:
        raise UserError(
            f"folder {str(clients)!r} has no subfolder; put the images of each class into a folder with its name"
        )
    by_class = [image_files(clients / name) for name in class_names]
    files = [path for paths in by_class for path in paths]
    if not files:
        raise UserError(f"folder {str(clients)!r} has no image in its subfolders ({listed(SUFFIXES)} are known)")
    tell_passed_over(clients, within - folders, "in no class's subfolder")
    memory = memory_of(settings)
    picture_format = common_format(files, settings.image_size, memory)
    x_test, y_test, ids = read_server_folder(server, picture_format, class_names, memory)
    return checked_source(
        clients.name,
        f"folder {str(clients)!r}",
        x_train=read_images(files, picture_format, memory),
        y_train=np.repeat(np.arange(len(class_names)), [len(paths) for paths in by_class]),
        x_test=x_test,
        y_test=y_test,
        class_names=class_names,
        ids=ids,
    )


def read_server_folder(
    folder: Path, picture_format: Format, class_names: list[str], memory: Memory
) -> tuple[Pixels, Labels | None, list[str]]:
    """The server's images [M, ...], their classes where subfolders of the classes' names give them, and their ids.

    An id is the file's name, with its folder where it lies in one. Images without subfolders come in the order of
    their names. Subfolders may be classes, so images in them come in an order that no folder has a part in.
    """
    files = image_files(folder)
    if not files:
        raise UserError(f"folder {str(folder)!r} has no image for the server ({listed(SUFFIXES)} are known)")
    if any(path.parent != folder for path in files):
        files = by_content(files, memory)
    parents = [path.relative_to(folder).parts[0] for path in files]
    labels = None
    if set(parents) <= set(class_names):
        number = {name: position for position, name in enumerate(class_names)}
        labels = np.array([number[name] for name in parents], dtype=np.int64)
        logger.info("%r: its subfolders are the classes, which mark the answer and do no more", str(folder))
    return read_images(files, picture_format, memory), labels, [path.relative_to(folder).as_posix() for path in files]


def folder_of(settings: DataSettings, key: str) -> Path:
    """The folder that `data_args.<key>` names."""
    named = getattr(settings, key)
    what = "the clients' images, a subfolder a class" if key == "data_file" else "the server's images"
    if named is None:
        raise UserError(f"data_args.{key} is not given; name the folder with {what} there")
    folder = Path(named).expanduser()
    if not folder.is_dir():
        wrong = "is a file, not a folder" if folder.exists() else "does not exist"
        raise UserError(f"folder {str(folder)!r} {wrong}; set data_args.{key} to the folder with {what}")
    return folder
