"""`mrtf label`: label samples with finished models of the parties, without training."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..api.teachers import label_with_teachers
from ..callbacks.progress import format_run_summary
from ..config import DataSettings, RunSettings
from ..config.loader import load_yaml
from ..data.sources.files import file_problem, memory_limit
from ..data.sources.images import SUFFIXES, common_format, list_images, read_server_folder
from ..data.sources.npz import read_npz
from ..data.sources.source import to_strings
from ..errors import UserError
from ..models.existing import Teacher
from ..training.run_directory import RunDirectory

_SUPPORTED = "a folder of images, an .npz file with x_test, an .npy or a .csv file"
#: The keys of `data_args` that say how samples are read; the other keys are those of `label()`.
_READING_KEYS = ("image_size", "text_column", "max_memory_mb")


def main(options: argparse.Namespace) -> int:
    """Label the samples and print a summary."""
    path = Path(os.path.expanduser(options.samples))
    changes = {key.strip(): load_yaml(value) for key, _, value in (text.partition("=") for text in options.set)}
    reading = {key: changes.pop(key) for key in _READING_KEYS if key in changes}
    data = RunSettings.from_config({"data_args": reading}).data
    if path.is_dir():
        samples, ids, labels = _read_folder(path, data, options.label_folders)
    elif options.label_folders:
        raise UserError(f"--label-folders: {str(path)!r} is not a folder of images; use --label-column for a table")
    else:
        samples, ids, labels = _read_file(path, data, options.id_column, options.label_column)
    features = None if options.features is None else _read_array(Path(os.path.expanduser(options.features)))
    result = label_with_teachers(
        samples,
        [_parse_teacher(text) for text in options.teacher],
        student=options.student,
        features=features,
        y=labels,
        ids=ids,
        classes=options.classes.split(",") if options.classes else None,
        dataset_name=path.stem,
        settings={"run_dir": options.out or f"runs/{path.stem}-labels", **changes},
    )
    assert result.run_dir is not None
    print(format_run_summary(RunDirectory.open(result.run_dir)))
    return 0


def _parse_teacher(text: str) -> Teacher:
    """FILE, or FILE=CLASS,CLASS,... with the class of each output."""
    file, _, classes = text.partition("=")
    return Teacher(file, classes.split(",") if classes else None)


def _read_folder(folder: Path, settings: DataSettings, has_labels: bool) -> tuple[Any, Any, Any]:
    """The images, their paths in the folder as ids, and the names of their subfolders if these are the true labels."""
    limit = memory_limit(settings)
    files = list_images(folder)
    if not files:
        raise UserError(f"folder {str(folder)!r} has no image; use images that end in {', '.join(SUFFIXES)}")
    pixels, _, ids = read_server_folder(folder, common_format(files, settings.image_size, limit), [], limit)
    parents = [Path(name).parts[0] if len(Path(name).parts) > 1 else None for name in ids]
    if has_labels and None in parents:
        raise UserError(f"--label-folders: {ids[parents.index(None)]!r} is in no subfolder; put it into one")
    return pixels, ids, parents if has_labels else None


def _read_file(
    path: Path, settings: DataSettings, id_column: str | None, label_column: str | None
) -> tuple[Any, Any, Any]:
    """The samples, their ids and their true labels, the latter two None where the file has none."""
    if not path.is_file():
        raise UserError(f"{str(path)!r} {file_problem(path)}; use {_SUPPORTED}")
    if path.suffix == ".csv":
        return _read_table(path, settings.text_column, id_column, label_column)
    if path.suffix == ".npy":
        return _read_array(path), None, None
    if path.suffix != ".npz":
        raise UserError(f"{str(path)!r} has an unknown file type; use {_SUPPORTED}")
    optional = ("ids", "y_test", "class_names")
    arrays = read_npz(path, f"data file {str(path)!r}", memory_limit(settings), ("x_test",), optional)
    labels: Any = arrays.get("y_test")
    if labels is not None and "class_names" in arrays:
        names = to_strings(arrays["class_names"])
        labels = [names[label] if 0 <= label < len(names) else None for label in np.asarray(labels).tolist()]
    return arrays["x_test"], to_strings(arrays["ids"]) if "ids" in arrays else None, labels


def _read_table(
    path: Path, text_column: str | None, id_column: str | None, label_column: str | None
) -> tuple[Any, Any, Any]:
    import pandas

    try:
        table = pandas.read_csv(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{str(path)!r} cannot be read as a table ({error}); write it as a .csv file") from None
    for column in (text_column, id_column, label_column):
        if column is not None and column not in table.columns:
            raise UserError(f"{str(path)!r} has no column {column!r}; its columns are {', '.join(table.columns)}")
    id_column = id_column or ("id" if "id" in table.columns else None)
    ids = None if id_column is None else table[id_column].astype(str).tolist()
    labels = None if label_column is None else table[label_column].tolist()
    if text_column is not None:
        return table[text_column].fillna("").astype(str).tolist(), ids, labels
    return table.drop(columns=[column for column in (id_column, label_column) if column is not None]), ids, labels


def _read_array(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UserError(f"{str(path)!r} cannot be read as an array ({error}); write it with numpy.save") from None
