"""A comparison as one HTML file that needs nothing beside it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

import yaml

from ..report.style import STYLE
from ..settings.secrets import HIDDEN, without_secrets
from ..settings.yaml_file import Config
from ..version import __version__
from .tables import Cells


def comparison_page(
    title: str, table: Cells, notes: Sequence[str], figures: Mapping[str, bytes], command: str, config: Config
) -> str:
    """The page: the table, its notes, the figures by their titles, and how it was made."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in table[1:])
    sections = [
        f'<p class="eyebrow">mrtf_fedml {escape(__version__)} · comparison</p>\n<h1>{escape(title)}</h1>',
        f'<div class="card"><table><tr>{head}</tr>{body}</table></div>',
        *(f'<p class="faint">{escape(note)}</p>' for note in notes),
    ]
    for name, png in figures.items():
        picture = base64.b64encode(png).decode()
        sections.append(
            f'<h2>{escape(name)}</h2>\n<div class="card">'
            f'<img alt="{escape(name)}" style="width:100%;background:#fff" src="data:image/png;base64,{picture}"></div>'
        )
    settings = escape(yaml.safe_dump(without_secrets(config, HIDDEN), sort_keys=False))
    sections.append(f"<h2>How it was made</h2>\n<pre>{escape(command)}</pre>")
    sections.append(f"<details><summary>The configuration</summary><pre>{settings}</pre></details>")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n" + "\n".join(sections) + "\n</main>\n</body>\n</html>\n"
    )
