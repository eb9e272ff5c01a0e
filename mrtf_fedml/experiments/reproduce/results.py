"""A finished scene in its folder: figures, numbers, verdicts, and what a reader must know of them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...rounds.whole_file import replace_file
from ...settings.secrets import words_without_secrets
from ...version import __version__
from ..tables import as_markdown, as_text
from .choosing import spelled
from .drawing import FORMATS, save
from .scene import NUMBERS_HEAD, Outcome, Request, Scene, rows_of_numbers

RESULT = "result.json"


def folder_of(scene: Scene, request: Request) -> Path:
    """Where a scene's files go: another budget or other data have a folder of their own, so nothing is lost."""
    name = scene.name
    if stand_ins(scene, request):
        name += "-stand-in"
    if request.only:
        name += "-" + "-".join(request.only)
    for entry in request.asked_panels:
        name += "-" + re.sub(r"[^a-z0-9=.]+", "-", ",".join(spelled(part) for part in entry.split(","))).strip("-")
    if request.budget.share < 1:
        name += f"-budget-{request.budget.share:g}"
    if request.grid:
        name += "-grid"
    changes = changed(request)
    if changes:
        # The keys for a person, and their values for the file system, which takes not every one.
        keys = dict.fromkeys(change.partition("=")[0].rpartition(".")[2] for change in changes)
        name += f"-set-{'-'.join(keys)}"[:60] + "-" + hashlib.sha256("\n".join(changes).encode()).hexdigest()[:6]
    return request.out / name


def changed(request: Request) -> list[str]:
    """What `--set` made other than the paper's, for every figure; threads change rounding alone."""
    words = words_without_secrets(request.changes)
    return [change for change in words if change.partition("=")[0].rpartition(".")[2].strip() != "threads"]


def stand_ins(scene: Scene, request: Request) -> list[str]:
    """Who stands in for what, for every figure."""
    found = [request.data(name) for name in _used(scene, request)]
    return [f"{data.stands_in} for {data.dataset.title}" for data in found if data.stands_in]


def write(scene: Scene, request: Request, outcome: Outcome, command: str) -> Path:
    """All files of the scene; returns the folder."""
    folder = folder_of(scene, request)
    stood_in = stand_ins(scene, request)
    foot = [f"mrtf {__version__}, {scene.place}" + (f"; presets {', '.join(request.presets)}" if scene.refines else "")]
    if stood_in:
        foot.insert(0, "STAND-IN DATA: " + "; ".join(stood_in))
    foot += [scene.budget_sentence(request.budget), _changes_sentence(request), *outcome.notes]
    save(outcome.figure, folder, foot)
    result = {
        "scene": scene.name,
        "place": scene.place,
        "shows": scene.shows,
        "claim": scene.claim,
        "stand_ins": stood_in,
        "budget": request.budget.share,
        "budget_sentence": scene.budget_sentence(request.budget),
        "presets": list(request.presets) if scene.refines else [],
        "seeds": request.seeds,
        "only": list(request.only),
        "asked_panels": list(request.asked_panels),
        "changes": changed(request),
        "parameters": list(scene.parameters),
        "numbers": rows_of_numbers(scene.name, outcome.numbers),
        "verdicts": [asdict(verdict) for verdict in outcome.verdicts],
        "notes": outcome.notes,
        "seconds": outcome.seconds,
        "command": command,
        "version": __version__,
    }
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([NUMBERS_HEAD, *rows_of_numbers(scene.name, outcome.numbers)])
    replace_file(folder / "numbers.csv", table.getvalue().encode())
    replace_file(
        folder / "numbers.md", as_markdown([NUMBERS_HEAD, *rows_of_numbers(scene.name, outcome.numbers)]).encode()
    )
    # Last: a folder that has it is whole.
    replace_file(folder / RESULT, json.dumps(result, indent=1, ensure_ascii=False).encode())
    return folder


def finished(out: Path) -> list[tuple[Path, dict[str, Any]]]:
    """All scenes of a folder that have come to their end; a file that cannot be read, or is another's, is none."""
    found = []
    for file in sorted(out.glob(f"*/{RESULT}")):
        try:
            result = json.loads(file.read_text())
        except (OSError, ValueError):
            continue
        if isinstance(result, dict) and {"scene", "numbers", "verdicts", "command"} <= set(result):
            found.append((file.parent, result))
    return found


def outcome_text(scene: Scene, request: Request, outcome: Outcome, folder: Path) -> str:
    """What the terminal shows at the end."""
    rows = rows_of_numbers(scene.name, outcome.numbers)
    papers = [row for row in rows if row[2]]
    lines = [f"{scene.place}: {scene.shows}"]
    lines += [f"STAND-IN DATA: {one}" for one in stand_ins(scene, request)]
    lines += [
        line for line in (scene.budget_sentence(request.budget), _changes_sentence(request), *outcome.notes) if line
    ]
    shown = papers or rows
    lines += ["", as_text([NUMBERS_HEAD[:5], *(row[:5] for row in shown)]), ""]
    if papers and len(papers) < len(rows):
        lines.append(
            f"{len(rows) - len(papers)} more, which the paper has no number for, are in {folder / 'numbers.md'}"
        )
    lines.append(f"The paper says: {scene.claim}.")
    lines += [sentence(asdict(verdict)) for verdict in outcome.verdicts]
    files = ", ".join(f"figure.{kind}" for kind in FORMATS)
    lines += ["", f"{minutes(outcome.seconds)} of computing; in {folder}: {files}, numbers.csv, numbers.md"]
    return "\n".join(lines)


def sentence(verdict: dict[str, Any]) -> str:
    """A verdict in a line."""
    word = {True: "held", False: "did NOT hold", None: "cannot be told"}[verdict["held"]]
    variant = f" [{verdict['variant']}]" if verdict["variant"] else ""
    return f"  {word}{variant}: {verdict['claim']} ({verdict['evidence']})"


def minutes(seconds: float) -> str:
    """A time that a person can plan with.

    >>> minutes(30), minutes(600), minutes(36000)
    ('30 s', '10 min', '10.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _changes_sentence(request: Request) -> str:
    return f"NOT THE PAPER'S, by --set: {', '.join(changed(request))}" if changed(request) else ""


def _used(scene: Scene, request: Request) -> Sequence[str]:
    missing = request.shelf.missing(scene.datasets)
    return [name for name in scene.needed(request) if name not in missing]
