"""The files of a finished experiment, and one HTML page of all that are finished."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from mrtf_fedml.config.secrets import redact_arguments
from mrtf_fedml.experiments.report import format_markdown, format_text
from mrtf_fedml.report.elements import (
    card,
    heading,
    html_document,
    paragraph,
    scrollable,
    table,
    table_of_contents,
    warning_box,
)
from mrtf_fedml.training.files import atomic_write
from mrtf_fedml.version import __version__

from .experiment import NUMBERS_HEADER, Experiment, Outcome, Request, format_numbers, to_ascii
from .figures import FORMATS, save

RESULT = "result.json"


def output_folder(experiment: Experiment, request: Request) -> Path:
    """The output folder; each budget, selection and kind of data has its own."""
    name = experiment.name
    if list_stand_ins(experiment, request):
        name += "-stand-in"
    if request.only:
        name += "-" + "-".join(request.only)
    for entry in request.panel_options:
        name += "-" + re.sub(r"[^a-z0-9=.]+", "-", ",".join(to_ascii(part) for part in entry.split(","))).strip("-")
    if request.budget.share < 1:
        name += f"-budget-{request.budget.share:g}"
    if request.grid:
        name += "-grid"
    changes = visible_changes(request)
    if changes:
        # The keys in clear, and a hash of keys and values, which may contain any character.
        keys = dict.fromkeys(change.partition("=")[0].rpartition(".")[2] for change in changes)
        name += f"-set-{'-'.join(keys)}"[:60] + "-" + hashlib.sha256("\n".join(changes).encode()).hexdigest()[:6]
    return request.out / name


def visible_changes(request: Request) -> list[str]:
    """The changes of `--set`, for the footer of a figure; `threads` is omitted, since it only changes rounding."""
    words = redact_arguments(request.changes)
    return [change for change in words if change.partition("=")[0].rpartition(".")[2].strip() != "threads"]


def list_stand_ins(experiment: Experiment, request: Request) -> list[str]:
    """The stand-ins of the experiment, for the footer of a figure."""
    found = [request.data(name) for name in _available_datasets(experiment, request)]
    return [f"{data.stand_in} for {data.dataset.title}" for data in found if data.stand_in]


def write_outcome(experiment: Experiment, request: Request, outcome: Outcome, command: str) -> Path:
    """Write all files of the experiment and return the folder."""
    folder = output_folder(experiment, request)
    replaced = list_stand_ins(experiment, request)
    footer = [
        f"mrtf {__version__}, {experiment.place}"
        + (f"; presets {', '.join(request.presets)}" if experiment.refines else "")
    ]
    if replaced:
        footer.insert(0, "STAND-IN DATA: " + "; ".join(replaced))
    footer += [experiment.describe_budget(request.budget), _changes_sentence(request), *outcome.notes]
    save(outcome.figure, folder, footer)
    result = {
        "experiment": experiment.name,
        "place": experiment.place,
        "caption": experiment.caption,
        "claim": experiment.claim,
        "stand_ins": replaced,
        "budget": request.budget.share,
        "budget_description": experiment.describe_budget(request.budget),
        "presets": list(request.presets) if experiment.refines else [],
        "seeds": request.seeds,
        "only": list(request.only),
        "panel_options": list(request.panel_options),
        "changes": visible_changes(request),
        "parameters": list(experiment.parameters),
        "numbers": format_numbers(experiment.name, outcome.numbers),
        "checks": [asdict(check) for check in outcome.checks],
        "notes": outcome.notes,
        "seconds": outcome.seconds,
        "command": command,
        "version": __version__,
    }
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(
        [NUMBERS_HEADER, *format_numbers(experiment.name, outcome.numbers)]
    )
    atomic_write(folder / "numbers.csv", table.getvalue().encode())
    atomic_write(
        folder / "numbers.md",
        format_markdown([NUMBERS_HEADER, *format_numbers(experiment.name, outcome.numbers)]).encode(),
    )
    # Written last: a folder with this file is complete.
    atomic_write(folder / RESULT, json.dumps(result, indent=1, ensure_ascii=False).encode())
    return folder


def read_finished(out: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The folders and results of all finished experiments; unreadable or foreign files are skipped."""
    results = []
    for file in sorted(out.glob(f"*/{RESULT}")):
        try:
            result = json.loads(file.read_text())
        except (OSError, ValueError):
            continue
        if isinstance(result, dict) and {"experiment", "numbers", "checks", "command"} <= set(result):
            results.append((file.parent, result))
    return results


def format_outcome(experiment: Experiment, request: Request, outcome: Outcome, folder: Path) -> str:
    """The summary for the terminal."""
    rows = format_numbers(experiment.name, outcome.numbers)
    papers = [row for row in rows if row[2]]
    lines = [f"{experiment.place}: {experiment.caption}"]
    lines += [f"STAND-IN DATA: {one}" for one in list_stand_ins(experiment, request)]
    lines += [
        line
        for line in (experiment.describe_budget(request.budget), _changes_sentence(request), *outcome.notes)
        if line
    ]
    shown = papers or rows
    lines += ["", format_text([NUMBERS_HEADER[:5], *(row[:5] for row in shown)]), ""]
    if papers and len(papers) < len(rows):
        lines.append(
            f"{len(rows) - len(papers)} more, which the paper has no number for, are in {folder / 'numbers.md'}"
        )
    lines.append(f"The paper says: {experiment.claim}.")
    lines += [format_check(asdict(check)) for check in outcome.checks]
    files = ", ".join(f"figure.{kind}" for kind in FORMATS)
    lines += ["", f"{format_duration(outcome.seconds)} of computing; in {folder}: {files}, numbers.csv, numbers.md"]
    return "\n".join(lines)


def format_check(check: dict[str, Any]) -> str:
    """One line per check."""
    word = {True: "holds", False: "does NOT hold", None: "no conclusion"}[check["holds"]]
    variant = f" [{check['variant']}]" if check["variant"] else ""
    return f"  {word}{variant}: {check['claim']} ({check['evidence']})"


def format_duration(seconds: float) -> str:
    """A duration in seconds, minutes or hours.

    >>> format_duration(30), format_duration(600), format_duration(36000)
    ('30 s', '10 min', '10.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _changes_sentence(request: Request) -> str:
    return f"NOT THE PAPER'S, by --set: {', '.join(visible_changes(request))}" if visible_changes(request) else ""


def _available_datasets(experiment: Experiment, request: Request) -> Sequence[str]:
    missing = request.data_folder.missing(experiment.datasets)
    return [name for name in experiment.required_datasets(request) if name not in missing]


PAGE = "reproduction.html"
#: A longer table is collapsed.
MAX_OPEN_ROWS = 30


def write_page(out: Path, experiments: Mapping[str, Experiment]) -> Path | None:
    """Write the page of all finished experiments, in the order given; None where none is finished."""
    order = list(experiments)
    done = [(folder, result) for folder, result in read_finished(out) if result.get("experiment") in order]
    if not done:
        return None
    done.sort(key=lambda one: (order.index(one[1]["experiment"]), one[0].name))
    sections = [_section(folder, result) for folder, result in done]
    missing = [experiments[name].place for name in order if name not in {result["experiment"] for _, result in done}]
    head = [
        f'<p class="eyebrow">mrtf {escape(__version__)} · reproduction</p>\n<h1>Reproduction of the paper</h1>',
        paragraph(
            "Each figure and table with the paper's claim, whether it holds, and the paper's numbers next to ours."
        ),
        table_of_contents(sections),
    ]
    if missing:
        head.append(paragraph(f"Not run yet: {', '.join(missing)}."))
    file = out / PAGE
    atomic_write(file, html_document("Reproduction of the paper", [*head, *sections]).encode())
    return file


def _section(folder: Path, result: dict[str, Any]) -> str:
    budget = f" at budget {result['budget']:g}" if result["budget"] < 1 else ""
    title = f"{result['place']}{budget}" + (f", {', '.join(result['only'])}" if result["only"] else "")
    # The title distinguishes several results of one experiment.
    title += f", {'; '.join(result['panel_options'])}" if result.get("panel_options") else ""
    title += f", with {', '.join(result['changes'])}" if result.get("changes") else ""
    picture = folder / "figure.png"
    image = ""
    if picture.is_file():
        content = base64.b64encode(picture.read_bytes()).decode()
        alt = escape(f"{result['place']}: {result['caption']}", quote=True)
        drawn = f'<img class="figure" alt="{alt}" src="data:image/png;base64,{content}">'
        image = scrollable(drawn, f"Figure of {result['place']}")
    changes = f"Not the paper's, by --set: {', '.join(result['changes'])}" if result.get("changes") else ""
    notes = [result["budget_description"], changes, *result["notes"]]
    seeds = f"{result['seeds']} seed{'s' * (result['seeds'] > 1)}"
    presets = f", presets {', '.join(result['presets'])}" if result["presets"] else ""
    rows = result["numbers"]
    numbers = table(rows, NUMBERS_HEADER, f"Numbers of {result['place']}")
    if len(rows) > MAX_OPEN_ROWS:
        numbers = f"<details><summary>{len(rows)} numbers</summary>{numbers}</details>"
    return "\n".join(
        [
            heading(title, folder.name),
            warning_box([f"Stand-in data: {one}" for one in result["stand_ins"]]),
            f"<p><strong>The paper says:</strong> {escape(result['claim'])}.</p>",
            "<ul>" + "".join(f"<li>{escape(format_check(one).strip())}</li>" for one in result["checks"]) + "</ul>",
            card(image),
            "".join(paragraph(note) for note in notes if note),
            card(numbers),
            paragraph(f"{result['command']} · {seeds}{presets} · {format_duration(result['seconds'])} of computing"),
        ]
    )
