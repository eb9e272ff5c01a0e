"""Unlabelled samples for a trained model (`mrtf predict`): a file or folder of the same kind as the server's set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..config import DataSettings, RunSettings
from ..errors import UserError
from .formatting import escape, unescape
from .preprocessing import Preprocessing, load_run_encoder, to_samples
from .sources.csv_columns import Columns
from .sources.csv_files import non_feature_columns, read_table
from .sources.files import file_problem, memory_limit
from .sources.images import SUFFIXES, ImageFormat, read_images, read_server_folder
from .sources.npz import read_npz
from .sources.source import Array, check_samples, is_text, to_strings

_SUPPORTED = "an .npz file, a .csv file, an image or a folder of images"


def read_inference_inputs(
    path: Path, facts: Mapping[str, Any], settings: RunSettings, run_dir: Path
) -> tuple[Tensor, list[str]]:
    """The preprocessed samples [N, ...] and their ids.

    Args:
        path: an .npz file with x_test (and ids), a .csv file with the features' columns, an image or a folder of them.
        facts: the header of the model's file.
        settings: the run's settings, for column names, the memory limit and the encoder.
        run_dir: the run directory.
    """
    preprocessing = read_preprocessing(facts, settings, run_dir)
    shape = tuple(facts["input_shape"]) if preprocessing.encoder is None else preprocessing.sample_shape
    array, ids = _read(path, facts["class_names"], shape, settings.data, preprocessing)
    if is_text(array) != (preprocessing.kind == "text"):
        expected = "texts" if preprocessing.kind == "text" else "samples other than texts"
        raise UserError(f"{str(path)!r} has another kind of sample than the model was trained on; use {expected}")
    is_pixels = array.dtype == np.uint8 and array.ndim >= 3
    if is_pixels != (preprocessing.kind == "pixels"):
        expected = "uint8 images" if preprocessing.kind == "pixels" else "numbers other than uint8 images"
        raise UserError(f"{str(path)!r} has another kind of sample than the model was trained on; use {expected}")
    samples = to_samples(array, preprocessing.kind == "tokens")
    if tuple(samples.shape[1:]) != shape:
        raise UserError(
            f"a sample of {str(path)!r} has shape {tuple(samples.shape[1:])} but the model was trained on {shape}; use "
            "samples of the same kind"
        )
    return preprocessing.apply(samples), ids


def read_preprocessing(facts: Mapping[str, Any], settings: RunSettings, run_dir: Path) -> Preprocessing:
    """The preprocessing of a finished run, with its encoder, from the header of its model's file.

    The encoder's files are those of the run's configuration; a file that is not there any more is searched in the run
    directory. Files other than those of the run are refused.
    """
    values, shape = facts["preprocessing"], tuple(facts["input_shape"])
    record = values.get("encoder")
    if record is None:
        return Preprocessing.from_json(values, shape)
    try:
        encoder = load_run_encoder(replace(settings, model=settings.model.with_files_in(run_dir)), values["kind"])
    except UserError as error:
        raise UserError(f"{error} (or copy the encoder's files into {str(run_dir)!r})") from error
    if encoder is None or encoder.digest != record["digest"]:
        raise UserError(
            f"the encoder {record['name']} is not the one of the run in {str(run_dir)!r}: its files or its settings "
            "have changed; restore them"
        )
    return Preprocessing.from_json(values, shape, encoder)


def _read(
    path: Path, class_names: list[str], shape: tuple[int, ...], settings: DataSettings, preprocessing: Preprocessing
) -> tuple[Array, list[str]]:
    limit = memory_limit(settings)
    is_image = path.suffix.lower() in SUFFIXES and path.is_file()
    if path.is_dir() or is_image:
        if len(shape) != 3 or shape[0] not in (1, 3) or preprocessing.kind != "pixels":
            what = "an image" if is_image else "a folder"
            raise UserError(
                f"{str(path)!r} is {what}, but the model was not trained on images; use an .npz or .csv file"
            )
        image_format = ImageFormat(shape[1], shape[2], shape[0] == 1)
        if is_image:
            return read_images([path], image_format, limit), [escape(path.name)]
        folder_names = [unescape(name) for name in class_names]
        pixels, _, ids = read_server_folder(path, image_format, folder_names, limit)
        return pixels, [escape(name) for name in ids]
    if not path.is_file():
        raise UserError(f"{str(path)!r} {file_problem(path)}; use {_SUPPORTED}")
    if path.suffix == ".npz":
        origin = f"data file {str(path)!r}"
        arrays = read_npz(path, origin, limit, ("x_test",), ("ids",))
        check_samples(origin, "x_test", arrays["x_test"])
        ids = to_strings(arrays["ids"]) if "ids" in arrays else _row_numbers(arrays["x_test"])
        if len(ids) != len(arrays["x_test"]):
            raise UserError(f"{origin}: ids has {len(ids)} entries but x_test has {len(arrays['x_test'])}")
        return arrays["x_test"], ids
    if path.suffix == ".csv":
        id_column, others = non_feature_columns(settings)
        file_settings = replace(settings, server_file=str(path))
        table = read_table(file_settings, "server_file", others, ("id_column",), _columns(preprocessing))
        samples = table.samples(settings.text_column)
        return samples, to_strings(table.strings.get(id_column, _row_numbers(samples)))
    raise UserError(f"{str(path)!r} has an unknown file type; use {_SUPPORTED}")


def _columns(preprocessing: Preprocessing) -> Columns | None:
    """The required columns: those of the run's own file, or the names of its table's features."""
    if preprocessing.columns is not None or preprocessing.features is None:
        return preprocessing.columns
    return Columns(preprocessing.features)


def _row_numbers(samples: Array) -> list[str]:
    return [str(row) for row in range(len(samples))]
