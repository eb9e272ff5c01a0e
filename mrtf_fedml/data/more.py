"""More samples of a kind that a model has been trained for: a file or folder like the server's, without labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import UserError
from ..settings import DataSettings
from .names import original, printable
from .preprocessing import Preprocessing
from .sources.checks import check_inputs, texts_of
from .sources.csv_columns import Columns
from .sources.csv_file import read_table
from .sources.images import read_server_folder
from .sources.memory import memory_of
from .sources.npz_arrays import read_npz
from .sources.pictures import SUFFIXES, Format, read_images
from .sources.source import Array
from .tensors import to_tensor

_KINDS = "an .npz file, a .csv file, an image or a folder of images"


def read_more(path: Path, facts: Mapping[str, Any], settings: DataSettings) -> tuple[Tensor, list[str]]:
    """The samples [N, ...] as the model wants them, and their ids.

    Args:
        path: an .npz file with x_test (and ids), a .csv file with the features' columns, an image or a folder of them.
        facts: what the model's file tells.
        settings: the run's, for the names of columns and for memory.
    """
    shape = tuple(facts["input_shape"])
    preprocessing = Preprocessing.from_facts(facts["preprocessing"], shape)
    array, ids = _read(path, facts, settings, preprocessing)
    is_pixels = array.dtype == np.uint8 and array.ndim >= 3
    if is_pixels != (preprocessing.kind == "pixels"):
        wanted = "uint8 images" if preprocessing.kind == "pixels" else "numbers that are no uint8 images"
        raise UserError(f"{str(path)!r} holds another kind of sample than the model was trained on; give {wanted}")
    inputs = to_tensor(array, preprocessing.kind == "tokens")
    if tuple(inputs.shape[1:]) != shape:
        raise UserError(
            f"a sample of {str(path)!r} has shape {tuple(inputs.shape[1:])} but the model was trained on {shape}; give "
            "samples of the same kind"
        )
    return inputs if preprocessing.scale is None else preprocessing.scale(inputs), ids


def _read(
    path: Path, facts: Mapping[str, Any], settings: DataSettings, preprocessing: Preprocessing
) -> tuple[Array, list[str]]:
    memory, shape = memory_of(settings), facts["input_shape"]
    is_image = path.suffix.lower() in SUFFIXES and path.is_file()
    if path.is_dir() or is_image:
        if len(shape) != 3 or shape[0] not in (1, 3) or preprocessing.kind != "pixels":
            what = "an image" if is_image else "a folder"
            raise UserError(
                f"{str(path)!r} is {what}, but the model was trained on no images; give an .npz or .csv file"
            )
        wanted = Format(shape[1], shape[2], shape[0] == 1)
        if is_image:
            return read_images([path], wanted, memory), [printable(path.name)]
        names = [original(name) for name in facts["class_names"]]
        pixels, _, ids = read_server_folder(path, wanted, names, memory)
        return pixels, [printable(name) for name in ids]
    if not path.is_file():
        raise UserError(f"{str(path)!r} does not exist; name {_KINDS}")
    if path.suffix == ".npz":
        origin = f"data file {str(path)!r}"
        arrays = read_npz(path, origin, memory, ("x_test",), ("ids",))
        check_inputs(origin, "x_test", arrays["x_test"])
        ids = texts_of(arrays["ids"]) if "ids" in arrays else _numbered(arrays["x_test"])
        if len(ids) != len(arrays["x_test"]):
            raise UserError(f"{origin}: ids has {len(ids)} entries but x_test has {len(arrays['x_test'])}")
        return arrays["x_test"], ids
    if path.suffix == ".csv":
        id_column = "id" if settings.id_column is None else settings.id_column
        apart = {name for name in (settings.label_column, id_column, settings.user_column) if name is not None}
        there = replace(settings, server_file=str(path))
        table = read_table(there, "server_file", apart, ("id_column",), _columns(preprocessing))
        return table.features, texts_of(table.texts.get(id_column, _numbered(table.features)))
    raise UserError(f"{str(path)!r} is of no kind that is known; name {_KINDS}")


def _columns(preprocessing: Preprocessing) -> Columns | None:
    """What the file must have: the columns of the run's own file, or the names of its table's features."""
    if preprocessing.columns is not None or preprocessing.features is None:
        return preprocessing.columns
    return Columns(preprocessing.features)


def _numbered(samples: Array) -> list[str]:
    return [str(row) for row in range(len(samples))]
