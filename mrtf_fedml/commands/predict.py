"""`mrtf predict`: label more data of the same kind with the model of a finished run."""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path
from typing import Any

from ..config import RunSettings
from ..data.inference_inputs import read_inference_inputs
from ..errors import UserError
from ..training.outputs import predict_to_csv
from ..training.run_directory import RunDirectory
from .configuration import apply_changes


def main(options: argparse.Namespace) -> int:
    """Write the predictions."""
    print(predict(options.run_dir, options.samples, options.out))
    return 0


def predict(run_dir: str, samples: str, out: str | None = None) -> str:
    """Write index, id, label, class name and confidence of each sample; return their number and the file.

    Args:
        run_dir: the run directory.
        samples: an .npz or .csv file, an image, or a folder of images.
        out: the file to write; default `<name>.predictions.csv` in the current folder.
    """
    directory = RunDirectory.open(run_dir)
    directory.extend_import_path()
    weights, facts = directory.read_model()
    settings = RunSettings.from_config(apply_changes(directory.read_config(), []))
    place = Path(os.path.expanduser(samples))
    inputs, ids = read_inference_inputs(place, facts, settings, directory.path)
    table = predict_to_csv(weights, facts, inputs, ids, build_other_model)
    file = Path(out) if out else Path(f"{place.stem}.predictions.csv")
    try:
        file.write_text(table)
    except OSError as error:
        raise UserError(f"{str(file)!r} cannot be written ({error.strerror}); name another with --out") from None
    return f"{len(ids)} sample{'' if len(ids) == 1 else 's'} labelled: {file}"


def build_other_model(*arguments: Any) -> Any:
    """A model of FedML, torchvision or the user; imported here because the import of FedML takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ..fedml_bridge.model_zoo import build_model
    return build_model(*arguments)
