"""`mrtf predict`: label more data of the same kind with the model of a finished run."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..config import RunSettings
from ..data.inference_inputs import read_inference_inputs
from ..data.preprocessing import Preprocessing
from ..diagnostics.new_samples import NewSampleTrust
from ..errors import UserError
from ..training.outputs import predict_with_saved_model, predictions_csv
from ..training.run_directory import RunDirectory
from .configuration import apply_changes

#: The labels are written, but the samples differ from those of the run.
DIFFERENT_SAMPLES_EXIT_CODE = 3


def main(options: argparse.Namespace) -> int:
    """Write the predictions; warnings go to stderr and give another exit code."""
    message, found = predict(options.run_dir, options.samples, options.out, options.set, options.force)
    print(message)
    for warning in found:
        print(f"WARNING: {warning}", file=sys.stderr)
    return DIFFERENT_SAMPLES_EXIT_CODE if found else 0


def predict(
    run_dir: str, samples: str, out: str | None = None, changes: Sequence[str] = (), force: bool = False
) -> tuple[str, list[str]]:
    """Write index, id, label, class name, confidence of each sample, and how far its label can be trusted.

    The latter where the run has calibrated its confidences, and the samples are like those of the run.

    Args:
        run_dir: the run directory.
        samples: an .npz or .csv file, an image, or a folder of images.
        out: the file to write; default `<name>.predictions.csv` in the current folder.
        changes: `key=value` changes to the run's settings, such as id_column=case.
        force: overwrite a file that exists.

    Returns:
        The number of samples with the file's name, and one warning per difference to the run's samples.
    """
    directory = RunDirectory.open(run_dir)
    directory.extend_import_path()
    place = Path(os.path.expanduser(samples))
    file = Path(out) if out else Path(f"{place.stem}.predictions.csv")
    if file.exists() and not force:
        raise UserError(f"{str(file)!r} exists; name another file with --out, or overwrite it with --force")
    weights, facts = directory.read_model()
    settings = RunSettings.from_config(apply_changes(directory.read_config(), list(changes)))
    inputs, ids = read_inference_inputs(place, facts, settings, directory.path)
    logits = predict_with_saved_model(weights, facts, inputs, build_other_model)
    kept = NewSampleTrust.read(directory, settings.common.accept)
    preprocessing = Preprocessing.from_json(facts["preprocessing"], tuple(inputs.shape[1:]))
    found = kept.find_differences(inputs, logits.argmax(dim=1), facts["class_names"], preprocessing)
    trust = kept.assess(inputs, logits.softmax(dim=1), found)
    try:
        file.write_text(predictions_csv(logits, ids, facts["class_names"], trust))
    except OSError as error:
        raise UserError(f"{str(file)!r} cannot be written ({error.strerror}); name another with --out") from None
    message = f"{len(ids)} sample{'' if len(ids) == 1 else 's'} labelled: {file}"
    of_run = directory.read_json("summary.json").get("warnings") or []
    if of_run:
        message += f"\nThe run has {len(of_run)} warnings, which apply to these labels too: see its report.html"
    return message, found or []


def build_other_model(*arguments: Any) -> Any:
    """A model of FedML, torchvision or the user; imported here because the import of FedML takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ..fedml_bridge.model_zoo import build_model
    return build_model(*arguments)
