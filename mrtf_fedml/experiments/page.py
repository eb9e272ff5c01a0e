"""A comparison as one HTML file that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from ..report.document import card, document, faint, heading, settings, table, typed
from ..settings.sections import Config
from ..version import __version__
from .tables import Cells


def comparison_page(
    title: str, cells: Cells, notes: Sequence[str], charts: Mapping[str, str], command: str, config: Config
) -> str:
    """The page: the table, its notes, the charts by their titles, and how it was made."""
    sections = [
        f'<p class="eyebrow">mrtf {escape(__version__)} · comparison</p>\n<h1>{escape(title)}</h1>',
        card(table(cells[1:], cells[0], title)),
        f'<div class="notes">{"".join(faint(note) for note in notes)}</div>',
    ]
    for number, (name, chart) in enumerate(charts.items()):
        sections.append(f"{heading(name, f'chart{number}')}\n{card(chart)}")
    sections.append(f"{heading('How it was made', 'made')}\n{card(typed(command))}")
    sections.append(settings("The configuration", dict(config)))
    return document(title, sections)
