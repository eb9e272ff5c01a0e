"""The command line: the benchmarks by name, the file of their results, and the comparison with an earlier file."""

from __future__ import annotations

import argparse
import json
import os
import platform
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mrtf_fedml.cli import run_command
from mrtf_fedml.config.sections import PrecisionName
from mrtf_fedml.errors import UserError, suggest_name
from mrtf_fedml.models.precision import FLOAT32
from mrtf_fedml.process.logs import log_to_terminal
from mrtf_fedml.process.tuning import has_fast_bf16
from mrtf_fedml.training.files import atomic_write
from mrtf_fedml.version import __version__

from .growth import measure_classes, measure_clients, measure_server_set
from .local import measure_local
from .measure import Row
from .peers import measure_peers
from .ranks import measure_ranks
from .refine import measure_refine
from .ridge import measure_ridge
from .whole_round import measure_round

#: Benchmarks by name that support both precisions. The argument `quick` makes a smoke test, whose ratios mean nothing.
_ANY_PRECISION: dict[str, Callable[[bool, PrecisionName], list[Row]]] = {
    "refine": measure_refine,
    "local": measure_local,
    "round": measure_round,
}
#: Benchmarks that support only float32.
_FLOAT32_ONLY: dict[str, Callable[[bool], list[Row]]] = {
    "clients": measure_clients,
    "server_set": measure_server_set,
    "classes": measure_classes,
    "ridge": measure_ridge,
    "ranks": measure_ranks,
    "peers": measure_peers,
}
#: A smaller relative change is noise.
_NOISE = 0.05


def select_benchmarks(names: Sequence[str], precision: PrecisionName = FLOAT32) -> list[str]:
    """The named benchmarks, or all that support the precision."""
    everything = [*_ANY_PRECISION, *_FLOAT32_ONLY]
    for name in names:
        if name not in everything:
            raise UserError(f"there is no benchmark {name!r}; {suggest_name(name, everything)}")
        if precision != FLOAT32 and name in _FLOAT32_ONLY:
            raise UserError(f"{name} supports only float32; --precision {precision} is for {', '.join(_ANY_PRECISION)}")
    return list(names) or (everything if precision == FLOAT32 else list(_ANY_PRECISION))


def run_benchmarks(
    names: Sequence[str], quick: bool, show: Callable[[str], None], precision: PrecisionName = FLOAT32
) -> dict[str, Any]:
    """Run the benchmarks with one thread and return the results with a description of the machine."""
    torch.set_num_threads(1)
    results: dict[str, Any] = {
        "version": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": 1,
        "quick": quick,
        "precision": precision,
        "has_fast_bf16": has_fast_bf16(),
        "benchmarks": {},
    }
    for name in names:
        rows = _ANY_PRECISION[name](quick, precision) if name in _ANY_PRECISION else _FLOAT32_ONLY[name](quick)
        results["benchmarks"][name] = [row.plain() for row in rows]
        show(table(name, rows))
    return results


def table(name: str, rows: Sequence[Row]) -> str:
    """The rows as text."""
    lines = [name]
    for row in rows:
        spread = f"{row.ratio:8.3f}  ({row.low:.3f} to {row.high:.3f})"
        lines.append(f"  {row.name:<44} {spread:<30} {row.means}")
        if "not_measured" in row.detail:
            lines[-1] = f"  {row.name:<44} not measured: {row.detail['not_measured']}"
    return "\n".join(lines)


def read_results(file: Path) -> dict[str, Any]:
    """The results of an earlier call."""
    try:
        results = json.loads(file.read_text())
        assert isinstance(results["benchmarks"], dict)
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        raise UserError(
            f"{file} is no file of results ({error}); `python benchmarks/speed --out FILE` writes one"
        ) from None
    # Older files have no precision: it was float32.
    return {"precision": FLOAT32, **results}


def find_slower(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The rows that are slower than before by more than 5 % and beyond both spreads.

    A row whose ratio has another meaning in that file is skipped.

    >>> def figures(ratio):
    ...     row = {"name": "x", "ratio": ratio, "low": ratio, "high": ratio, "means": "a / b", "better": "less"}
    ...     return {"benchmarks": {"local": [row]}}
    >>> find_slower(figures(1.0), figures(1.5))
    ['local: x: 1.000 before, 1.500 now (a / b)']
    >>> find_slower(figures(1.5), figures(1.0))
    []
    """
    slower = []
    for name, rows in now["benchmarks"].items():
        known = {row["name"]: row for row in before["benchmarks"].get(name, [])}
        for row in rows:
            old = known.get(row["name"])
            if (
                old is None
                or old["means"] != row["means"]
                or row["better"] is None
                or "not_measured" in row.get("detail", {})
            ):
                continue
            less = row["better"] == "less"
            change = row["ratio"] / old["ratio"] if less else old["ratio"] / row["ratio"]
            apart = row["low"] > old["high"] if less else row["high"] < old["low"]
            if change > 1 + _NOISE and apart:
                slower.append(
                    f"{name}: {row['name']}: {old['ratio']:.3f} before, {row['ratio']:.3f} now ({row['means']})"
                )
    return slower


def build_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python benchmarks/speed", description="The cost of a round on this machine, as ratios."
    )
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="refine local round clients server_set classes ridge ranks peers (all)"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test of seconds; its ratios mean nothing")
    parser.add_argument(
        "--precision",
        choices=("float32", "bf16"),
        default="float32",
        help="the precision of refine, local and round, and of their limits",
    )
    parser.add_argument("--out", metavar="FILE.json", help="write the results")
    parser.add_argument(
        "--compare", metavar="FILE.json", help="list what became slower since; exit code 1 where anything did"
    )
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, as `mrtf` does."""
    options = build_parser().parse_args(words)
    log_to_terminal(verbose=False)
    return run_command(run, options, "interrupted; nothing was written")


def run(options: argparse.Namespace) -> int:
    """Run the benchmarks, write the results, and list what became slower; the exit code is 1 where anything did."""
    names = select_benchmarks(options.names, options.precision)
    before = read_results(Path(options.compare)) if options.compare else None
    if before is not None and (before["quick"] or options.quick):
        raise UserError("results of --quick are those of a smoke test and mean nothing; compare full runs")
    if before is not None and before["precision"] != options.precision:
        raise UserError(
            f"{options.compare} has results in {before['precision']}, and these are in {options.precision}: "
            f"ratios of two precisions do not compare; add --precision {before['precision']}"
        )
    with warnings.catch_warnings():
        # FedML's imports give many warnings about their own dependencies.
        warnings.simplefilter("ignore")
        results = run_benchmarks(names, options.quick, lambda text: print(text, flush=True), options.precision)
    if options.out:
        atomic_write(Path(options.out), (json.dumps(results, indent=1) + "\n").encode())
        print(f"\nthe results are in {options.out}")
    if before is None:
        return 0
    slower = find_slower(before, results)
    print("\n".join([f"\nslower than in {options.compare}:", *slower] if slower else ["\nnothing got slower"]))
    return 1 if slower else 0
