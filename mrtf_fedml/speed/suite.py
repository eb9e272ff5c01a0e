"""The benchmarks by name; a file of their figures, a table, and what got slower since another file."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..errors import UserError, nearest
from ..models.precision import FLOAT32
from ..process.instructions import has_bf16
from ..settings.precision import Word
from ..version import __version__
from .growth import classes, clients, server_set
from .local import local
from .measure import Row
from .peers import peers
from .ranks import ranks
from .refining import refining
from .whole_round import whole_round

#: Each is told whether to be quick: a smoke test, whose figures mean nothing. These compute in a precision.
_IN_A_PRECISION: dict[str, Callable[[bool, Word], list[Row]]] = {
    "refine": refining,
    "local": local,
    "round": whole_round,
}
#: These in float32.
_IN_FLOAT32: dict[str, Callable[[bool], list[Row]]] = {
    "clients": clients,
    "server_set": server_set,
    "classes": classes,
    "ranks": ranks,
    "peers": peers,
}
#: A figure that got worse by less than this is noise.
_NOISE = 0.05


def chosen(names: Sequence[str], precision: Word = FLOAT32) -> list[str]:
    """The benchmarks of these names, or all that there are in the precision."""
    everything = [*_IN_A_PRECISION, *_IN_FLOAT32]
    for name in names:
        if name not in everything:
            raise UserError(f"there is no benchmark {name!r}; {nearest(name, everything)}")
        if precision != FLOAT32 and name in _IN_FLOAT32:
            raise UserError(
                f"{name} is measured in float32 alone; --precision {precision} is for {', '.join(_IN_A_PRECISION)}"
            )
    return list(names) or (everything if precision == FLOAT32 else list(_IN_A_PRECISION))


def measured(
    names: Sequence[str], quick: bool, tell: Callable[[str], None], precision: Word = FLOAT32
) -> dict[str, Any]:
    """Run them one after another, with one thread; the figures and what they were taken on."""
    torch.set_num_threads(1)
    figures: dict[str, Any] = {
        "version": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": 1,
        "quick": quick,
        "precision": precision,
        "has_bf16": has_bf16(),
        "benchmarks": {},
    }
    for name in names:
        rows = _IN_A_PRECISION[name](quick, precision) if name in _IN_A_PRECISION else _IN_FLOAT32[name](quick)
        figures["benchmarks"][name] = [row.plain() for row in rows]
        tell(table(name, rows))
    return figures


def table(name: str, rows: Sequence[Row]) -> str:
    """The rows for a person."""
    lines = [name]
    for row in rows:
        spread = f"{row.ratio:8.3f}  ({row.low:.3f} to {row.high:.3f})"
        lines.append(f"  {row.name:<44} {spread:<30} {row.means}")
        if "not_measured" in row.detail:
            lines[-1] = f"  {row.name:<44} not measured: {row.detail['not_measured']}"
    return "\n".join(lines)


def read_figures(file: Path) -> dict[str, Any]:
    """What an earlier call wrote."""
    try:
        figures = json.loads(file.read_text())
        assert isinstance(figures["benchmarks"], dict)
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        raise UserError(f"{file} is no file of figures ({error}); `mrtf bench --out FILE` writes one") from None
    # Files of before there was a choice.
    return {"precision": FLOAT32, **figures}


def slower(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The figures that are worse than before by more than 5 % and by more than both spreads explain.

    One that was another ratio in that file is not held against it.

    >>> def figures(ratio):
    ...     row = {"name": "x", "ratio": ratio, "low": ratio, "high": ratio, "means": "a / b", "better": "less"}
    ...     return {"benchmarks": {"local": [row]}}
    >>> slower(figures(1.0), figures(1.5))
    ['local: x: 1.000 before, 1.500 now (a / b)']
    >>> slower(figures(1.5), figures(1.0))
    []
    """
    worse = []
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
                worse.append(
                    f"{name}: {row['name']}: {old['ratio']:.3f} before, {row['ratio']:.3f} now ({row['means']})"
                )
    return worse
