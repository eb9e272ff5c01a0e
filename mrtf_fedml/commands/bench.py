"""`mrtf bench`: what a round costs on this machine, as ratios."""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

from ..errors import UserError
from ..rounds.whole_file import replace_file
from ..speed.suite import chosen, measured, read_figures, slower


def bench(options: argparse.Namespace) -> int:
    """Measure what was asked for, write the figures down, and say what got slower; 1 where something did."""
    names = chosen(options.names, options.precision)
    before = read_figures(Path(options.compare)) if options.compare else None
    if before is not None and (before["quick"] or options.quick):
        raise UserError("figures of --quick are a smoke test's and mean nothing; compare those of whole runs")
    if before is not None and before["precision"] != options.precision:
        raise UserError(
            f"{options.compare} has figures in {before['precision']}, and these are in {options.precision}: "
            f"ratios of two precisions do not compare; add --precision {before['precision']}"
        )
    with warnings.catch_warnings():
        # FedML's imports warn of their own dependencies at length.
        warnings.simplefilter("ignore")
        figures = measured(names, options.quick, lambda text: print(text, flush=True), options.precision)
    if options.out:
        replace_file(Path(options.out), (json.dumps(figures, indent=1) + "\n").encode())
        print(f"\nthe figures are in {options.out}")
    if before is None:
        return 0
    worse = slower(before, figures)
    print("\n".join([f"\nslower than in {options.compare}:", *worse] if worse else ["\nnothing got slower"]))
    return 1 if worse else 0
