"""`mrtf report`: write the report of a run again, or a page that compares several runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..config import RunSettings
from ..data import load
from ..errors import UserError
from ..report import write_multi_run_report, write_report
from ..training.run_directory import RunDirectory


def main(options: argparse.Namespace) -> int:
    """Write the page and print its path."""
    print(report(options.run_dirs, options.output))
    return 0


def report(run_dirs: Sequence[str], output: str | None = None) -> Path:
    """Write the page and return its path.

    One run gives `report.html` in its directory; the data are loaded again for pictures and scores, and pictures are
    omitted where the data are missing. Several runs give `side_by_side.html` next to the first run directory.

    Args:
        run_dirs: the run directories.
        output: another file to write.
    """
    directories = [RunDirectory.open(run_dir) for run_dir in run_dirs]
    return _write(directories, Path(output) if output else None)


def _write(directories: Sequence[RunDirectory], file: Path | None) -> Path:
    if len(directories) > 1:
        return write_multi_run_report(directories, file or directories[0].path.parent / "side_by_side.html")
    (directory,) = directories
    directory.extend_import_path()
    try:
        dataset = load(RunSettings.from_config(directory.read_config()))
    except UserError as error:
        print(f"the report is written without pictures of the samples: {error}", file=sys.stderr)
        return write_report(directory, None, None, file)
    return write_report(directory, dataset.server_inputs, dataset.evaluator, file)
