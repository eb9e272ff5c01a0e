"""HTML elements of the pages: the document, notes, cards, tables. Text is escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import yaml

from ..config.secrets import REDACTED, redact_secrets
from .style import STYLE

#: With this policy the browser loads nothing from a network and runs no script.
_CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


#: Names of settings and files in a sentence, but not within quotation marks, where a name is a user's.
_CODE = re.compile(
    r"(?<![\w'&./-])(?:[a-z]+(?:_[a-z]+)+(?:\.[a-z_]+)?|[a-z_]+\.(?:csv|npy|json|jsonl|yaml|safetensors))(?![\w'/])"
)


def html_document(title: str, sections: Iterable[str]) -> str:
    """A complete HTML file."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main>\n</body>\n</html>\n"
    )


def prose(text: str) -> str:
    """Escaped text with code set as code: what is in backquotes, settings with an underscore, and file names.

    >>> prose("run `mrtf doctor`, or lower learning_rate <0.1>; see predictions.csv")
    'run <code>mrtf doctor</code>, or lower <code>learning_rate</code> &lt;0.1&gt;; see <code>predictions.csv</code>'
    """
    spans = re.split(r"`([^`]+)`", escape(text))
    return "".join(
        f"<code>{span}</code>" if index % 2 else _CODE.sub(r"<code>\g<0></code>", span)
        for index, span in enumerate(spans)
    )


def paragraph(text: str) -> str:
    """A paragraph of explanation."""
    return f'<p class="faint">{prose(text)}</p>'


def heading(text: str, name: str) -> str:
    """The heading of a section, with an anchor for `table_of_contents`."""
    return f'<h2 id="{name}">{escape(text)}</h2>'


def table_of_contents(sections: Iterable[str]) -> str:
    """Links to all sections with a heading."""
    headings = re.findall(r'<h2 id="([^"]*)">(.*?)</h2>', "".join(sections))
    return "<nav>" + "".join(f'<a href="#{name}">{text}</a>' for name, text in headings) + "</nav>"


def card(content: str, title: str = "", text: str = "") -> str:
    """A box with a chart or a table."""
    head = (f"<h3>{escape(title)}</h3>" if title else "") + (paragraph(text) if text else "")
    return f'<div class="card">{head}{content}</div>'


def warning_box(sentences: Sequence[str]) -> str:
    """A box of warnings; empty without warnings."""
    if not sentences:
        return ""
    return f'<div class="warnings">{"".join(f"<p>{prose(sentence)}</p>" for sentence in sentences)}</div>'


def number_tiles(numbers: Iterable[tuple[str, str]]) -> str:
    """Large numbers with their labels, from (value, label)."""
    content = (
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span></div>' for value, label in numbers
    )
    return f'<div class="tiles">{"".join(content)}</div>'


def scrollable(table: str, label: str) -> str:
    """A table that may be wider than the screen; it scrolls separately, also by keyboard."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{table}</div>'


def table(rows: Iterable[Sequence[str]], head: Sequence[str], label: str) -> str:
    """A table of text with a header; the first column stays visible."""
    lines = [f"<tr>{''.join(f'<th>{with_break_points(cell)}</th>' for cell in head)}</tr>"]
    lines += [
        f"<tr><td>{with_break_points(first)}</td>{''.join(f'<td>{escape(cell)}</td>' for cell in rest)}</tr>"
        for first, *rest in rows
    ]
    return scrollable(f'<table class="first columns">{"".join(lines)}</table>', label)


def definition_table(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and values."""
    lines = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f'<table class="words">{"".join(lines)}</table>'


def command_block(command: str) -> str:
    """A command, whose lines break only between words."""
    return f"<pre>{' '.join(f'<span>{escape(word)}</span>' for word in command.split(' '))}</pre>"


def collapsible_section(title: str, content: str) -> str:
    """A collapsed section; browsers open it for a link to an anchor in it."""
    return f"<details><summary>{escape(title)}</summary>\n{content}</details>"


def config_details(title: str, config: Mapping[str, Any]) -> str:
    """A configuration in a collapsed section."""
    text = yaml.safe_dump(redact_secrets(config, REDACTED), sort_keys=False, allow_unicode=True)
    return f"<details><summary>{escape(title)}</summary>\n<pre>{escape(text)}</pre></details>"


def with_break_points(name: str) -> str:
    """A long name of a setting or a file, with possible line breaks between its words."""
    return re.sub(r"([._/-])", r"\1<wbr>", escape(name))
