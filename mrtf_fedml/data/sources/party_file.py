"""The samples of one party across silos (`own_data_file`): an .npz file, a CSV file or a folder of images.

No party knows the others' files, so the configuration has what all must agree on: the classes, the categories of a
table's columns and the size of images. The features of a table are sorted by name. The handshake compares them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...config import DataSettings
from ...errors import UserError
from ..formatting import format_list, quote
from .csv_files import non_feature_columns, read_table
from .files import file_problem, memory_limit
from .images import ImageFormat, list_images, read_images, read_server_folder
from .npz import read_npz
from .source import Array, Labels, Source, check_samples, make_source


def read_party_file(settings: DataSettings, rank: int) -> Source:
    """The samples of the party of this rank; `{rank}` in the name of its file is replaced by the rank.

    The server (rank 0) has unlabelled samples, a silo labelled ones. The half of the source that the party lacks is
    filled with one row of its own.
    """
    path = Path(os.path.expanduser(str(settings.own_data_file).replace("{rank}", str(rank))))
    origin = f"data_args.own_data_file {str(path)!r}"
    if path.is_dir():
        arrays = _read_folder(path, origin, settings, is_server=rank == 0)
    elif not path.is_file():
        raise UserError(
            f"{origin} {file_problem(path)}; name an .npz file, a .csv file or a folder of images, or correct the path"
        )
    elif path.suffix == ".csv":
        arrays = _read_csv(path, origin, settings, is_server=rank == 0)
    else:
        arrays = _read_npz(path, origin, settings, is_server=rank == 0)
    key = "x_test" if rank == 0 else "x_train"
    check_samples(origin, key, arrays[key])
    if rank == 0:
        arrays |= {"x_train": arrays["x_test"][:1], "y_train": np.zeros(1, dtype=np.int64)}
    else:
        arrays |= {"x_test": arrays["x_train"][:1]}
    return make_source(path.stem, origin, **arrays)


def _read_npz(path: Path, origin: str, settings: DataSettings, is_server: bool) -> dict[str, Any]:
    """The server's x_test and, optionally, ids and y_test; a silo's x_train and y_train; class_names of both."""
    names = ("class_names",) if settings.class_names is None else ()
    required = ("x_test", *names) if is_server else ("x_train", "y_train", *names)
    arrays: dict[str, Any] = read_npz(
        path, origin, memory_limit(settings), required, ("ids", "y_test") if is_server else ()
    )
    return arrays if settings.class_names is None else {**arrays, "class_names": settings.class_names}


def _read_csv(path: Path, origin: str, settings: DataSettings, is_server: bool) -> dict[str, Any]:
    class_names = _class_names(origin, settings)
    id_column, others = non_feature_columns(settings)
    required = ("id_column",) if is_server else ("label_column",)
    table = read_table(
        replace(settings, own_data_file=str(path)), "own_data_file", others, required, categories=settings.categories
    )
    labels, samples = table.strings.get(settings.label_column), table.samples(settings.text_column)
    if is_server:
        # An empty label column means that no label is known.
        known = None if labels is None or not any(labels) else _class_indices(origin, labels, class_names)
        arrays: dict[str, Any] = {"x_test": samples, "y_test": known, "ids": table.strings.get(id_column)}
    else:
        arrays = {"x_train": samples, "y_train": _class_indices(origin, labels or [], class_names)}
    return {**arrays, "class_names": class_names, "columns": table.columns if settings.text_column is None else None}


def _read_folder(folder: Path, origin: str, settings: DataSettings, is_server: bool) -> dict[str, Any]:
    """A silo's folder has a subfolder per class. All images are colour, since no party knows the others'."""
    class_names = _class_names(origin, settings)
    if settings.image_size is None:
        raise UserError(f"{origin} is a folder of images; set data_args.image_size, the same for every party")
    image_format, limit = ImageFormat(settings.image_size, settings.image_size, is_grey=False), memory_limit(settings)
    if is_server:
        pixels, labels, ids = read_server_folder(folder, image_format, class_names, limit)
        return {"x_test": pixels, "y_test": labels, "ids": ids, "class_names": class_names}
    files = list_images(folder)
    if not files:
        raise UserError(f"{origin} has no image; put the images of each class into a subfolder with its name")
    parents = [path.relative_to(folder).parts[0] if path.parent != folder else "" for path in files]
    labels_of_files: Labels = _class_indices(origin, parents, class_names)
    pixels_of_files: Array = read_images(files, image_format, limit)
    return {"x_train": pixels_of_files, "y_train": labels_of_files, "class_names": class_names}


def _class_names(origin: str, settings: DataSettings) -> list[str]:
    if settings.class_names is None:
        raise UserError(
            f"{origin} does not define the order of the classes; list all classes in data_args.class_names, the same "
            "for every party"
        )
    return settings.class_names


def _class_indices(origin: str, labels: list[str], class_names: list[str]) -> Labels:
    number = {name: index for index, name in enumerate(class_names)}
    for row, label in enumerate(labels, start=1):
        if label not in number:
            problem = f"has the class {quote(label)}" if label else "has no class"
            raise UserError(
                f"{origin}: sample {row} {problem}, but data_args.class_names has {format_list(class_names)}; correct "
                "one of them"
            )
    return np.array([number[label] for label in labels], dtype=np.int64)
