"""`mrtf ask`: the samples of a run whose labels would help most, in a file to be filled in."""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path

import numpy as np

from ..config import RunSettings
from ..data.formatting import escape_formula
from ..data.known_labels import GIVEN_LABELS, RANDOM, read_labels_file
from ..errors import UserError
from ..report.run_data import Indices, Predictions, read_run
from ..rng import numpy_generator
from ..training.run_directory import RunDirectory

#: The columns of the file; the last one is empty.
COLUMNS = ("index", "id", "prediction", "probability", "reason", "label")


def main(options: argparse.Namespace) -> int:
    """Write the file, and show the samples."""
    print(ask(options.run_dir, options.n, options.random, options.out, options.force))
    return 0


def ask(run_dir: str, samples: int = 20, at_random: bool = False, out: str | None = None, force: bool = False) -> str:
    """Write the samples to label, and return them as a text with what to do next.

    Args:
        run_dir: the run directory.
        samples: how many.
        at_random: draw them at random: their labels give an unbiased estimate of the accuracy.
        out: the file to write; default `ask.csv` in the current folder.
        force: overwrite a file that exists.
    """
    directory = RunDirectory.open(run_dir)
    run = read_run(directory, None, None)
    if run.predictions is None:
        raise UserError(f"the run in {run_dir!r} has no predictions yet; wait for its end, or resume it")
    if samples < 1:
        raise UserError(f"--n is {samples}; give at least 1")
    file = Path(out) if out else Path("ask.csv")
    if file.exists() and not force:
        raise UserError(f"{str(file)!r} exists; name another file with --out, or overwrite it with --force")
    settings = RunSettings.from_config(directory.read_config())
    chosen = _choose(directory, run.predictions, samples, settings.common.random_seed if at_random else None)
    if not len(chosen):
        raise UserError(f"all samples of the run in {run_dir!r} have a given label; there is nothing to ask")
    rows = _rows(directory, run.predictions, chosen, at_random)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([*row[:1], *(escape_formula(cell) for cell in row[1:]), ""] for row in rows)
    try:
        file.write_text(text.getvalue())
    except OSError as error:
        raise UserError(f"{str(file)!r} cannot be written ({error.strerror}); name another with --out") from None
    return _describe(rows, file, run_dir, settings)


def _choose(directory: RunDirectory, predictions: Predictions, samples: int, seed: int | None) -> Indices:
    """The samples without a given label, at random if there is a seed."""
    given = directory.path / GIVEN_LABELS
    known = read_labels_file(given, predictions.ids, predictions.class_names) if given.is_file() else None
    order = predictions.least_confident
    if seed is not None:
        order = numpy_generator(seed, "ask").permutation(len(order))
    if known is not None:
        order = order[~known.is_known.numpy()[order]]
    return order[:samples]


def _rows(directory: RunDirectory, predictions: Predictions, chosen: Indices, at_random: bool) -> list[list[str]]:
    """Index, id, prediction, probability and reason of each sample."""
    with (directory.path / "predictions.csv").open(newline="") as file:
        correct = [row.get("probability_correct") or "" for row in csv.DictReader(file)]
    names, rows = predictions.class_names, []
    for index in chosen.tolist():
        first, second = np.argsort(-predictions.probabilities[index], kind="stable")[:2].tolist()
        two = (f"{names[label]} {predictions.probabilities[index, label]:.2f}" for label in (first, second))
        probability = correct[index] or f"{predictions.confidences[index]:.6f}"
        reason = RANDOM if at_random else "uncertain: " + " or ".join(two)
        rows.append([str(index), predictions.ids[index], names[first], probability, reason])
    return rows


def _describe(rows: list[list[str]], file: Path, run_dir: str, settings: RunSettings) -> str:
    head = [list(COLUMNS[:-1]), *rows]
    widths = [max(len(row[column]) for row in head) for column in range(len(head[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in head]
    resumed = f"mrtf run --resume {run_dir} --set labels_file={file}"
    if settings.data.dataset == "arrays":
        resumed = f"label(..., labels_file={str(file)!r}) with the same arguments"
    elif settings.common.training_type == "cross_silo":
        resumed += " --role server, with the clients connected"
    return "\n".join(
        [
            *lines,
            "",
            f"{len(rows)} samples to label: {file}. Fill in the column label, as far as you can, then use the file: "
            f"{resumed}",
        ]
    )
