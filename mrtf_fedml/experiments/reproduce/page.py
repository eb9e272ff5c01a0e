"""All scenes done so far as one HTML file that needs nothing beside it."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from typing import Any

from ...report.document import card, contents, document, faint, heading, scrolling, table, warned
from ...rounds.whole_file import replace_file
from ...version import __version__
from .catalogue import SCENES
from .results import finished, minutes, sentence
from .scene import NUMBERS_HEAD

PAGE = "reproduction.html"
#: A table of more rows is folded away.
MOST_ROWS = 30


def write_page(out: Path) -> Path | None:
    """Write the page; None where no scene is done yet."""
    order = list(SCENES)
    done = [(folder, result) for folder, result in finished(out) if result.get("scene") in order]
    if not done:
        return None
    done.sort(key=lambda one: (order.index(one[1]["scene"]), one[0].name))
    sections = [_section(folder, result) for folder, result in done]
    missing = [SCENES[name].place for name in order if name not in {result["scene"] for _, result in done}]
    head = [
        f'<p class="eyebrow">mrtf {escape(__version__)} · reproduction</p>\n<h1>The paper, run again</h1>',
        faint("Each figure and table with the paper's claim, whether it held, and the paper's numbers beside ours."),
        contents(sections),
    ]
    if missing:
        head.append(faint(f"Not run yet: {', '.join(missing)}."))
    file = out / PAGE
    replace_file(file, document("The paper, run again", [*head, *sections]).encode())
    return file


def _section(folder: Path, result: dict[str, Any]) -> str:
    budget = f" at budget {result['budget']:g}" if result["budget"] < 1 else ""
    title = f"{result['place']}{budget}" + (f", {', '.join(result['only'])}" if result["only"] else "")
    # Several results of one scene are told apart in the contents.
    title += f", {'; '.join(result['asked_panels'])}" if result.get("asked_panels") else ""
    title += f", with {', '.join(result['changes'])}" if result.get("changes") else ""
    picture = folder / "figure.png"
    image = ""
    if picture.is_file():
        content = base64.b64encode(picture.read_bytes()).decode()
        alt = escape(f"{result['place']}: {result['shows']}", quote=True)
        drawn = f'<img class="figure" alt="{alt}" src="data:image/png;base64,{content}">'
        image = scrolling(drawn, f"Figure of {result['place']}")
    changes = f"Not the paper's, by --set: {', '.join(result['changes'])}" if result.get("changes") else ""
    notes = [result["budget_sentence"], changes, *result["notes"]]
    seeds = f"{result['seeds']} seed{'s' * (result['seeds'] > 1)}"
    presets = f", presets {', '.join(result['presets'])}" if result["presets"] else ""
    rows = result["numbers"]
    numbers = table(rows, NUMBERS_HEAD, f"Numbers of {result['place']}")
    if len(rows) > MOST_ROWS:
        numbers = f"<details><summary>{len(rows)} numbers</summary>{numbers}</details>"
    return "\n".join(
        [
            heading(title, folder.name),
            warned([f"Stand-in data: {one}" for one in result["stand_ins"]]),
            f"<p><strong>The paper says:</strong> {escape(result['claim'])}.</p>",
            "<ul>" + "".join(f"<li>{escape(sentence(one).strip())}</li>" for one in result["verdicts"]) + "</ul>",
            card(image),
            "".join(faint(note) for note in notes if note),
            card(numbers),
            faint(f"{result['command']} · {seeds}{presets} · {minutes(result['seconds'])} of computing"),
        ]
    )
