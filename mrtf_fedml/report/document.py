"""A page as one file: its frame, and the few elements that all pages are made of. Text is escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import yaml

from ..settings.secrets import HIDDEN, without_secrets
from .style import STYLE

#: The browser itself sees to it that the page asks nothing of any network and runs nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def document(title: str, sections: Iterable[str]) -> str:
    """The whole file."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main>\n</body>\n</html>\n"
    )


def faint(text: str) -> str:
    """A paragraph that explains."""
    return f'<p class="faint">{escape(text)}</p>'


def heading(text: str, name: str) -> str:
    """The head of a section, which `contents` can lead to by its name."""
    return f'<h2 id="{name}">{escape(text)}</h2>'


def contents(sections: Iterable[str]) -> str:
    """Links to all sections that have a heading."""
    found = re.findall(r'<h2 id="([^"]*)">(.*?)</h2>', "".join(sections))
    return "<nav>" + "".join(f'<a href="#{name}">{text}</a>' for name, text in found) + "</nav>"


def card(content: str, title: str = "", note: str = "") -> str:
    """A box around a chart or a table."""
    head = (f"<h3>{escape(title)}</h3>" if title else "") + (faint(note) if note else "")
    return f'<div class="card">{head}{content}</div>'


def warned(sentences: Sequence[str]) -> str:
    """What a reader must not overlook; nothing where there is nothing."""
    if not sentences:
        return ""
    return f'<div class="warnings">{"".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)}</div>'


def tiles(numbers: Iterable[tuple[str, str]]) -> str:
    """The few numbers that a reader looks for first, as (value, what it is)."""
    shown = (f'<div class="tile"><b>{escape(value)}</b><span>{escape(what)}</span></div>' for value, what in numbers)
    return f'<div class="tiles">{"".join(shown)}</div>'


def scrolling(table: str, label: str) -> str:
    """A table that may be wider than the screen: it scrolls by itself, also by keyboard, and shows that it does."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{table}</div>'


def table(rows: Iterable[Sequence[str]], head: Sequence[str], label: str) -> str:
    """A table of text with a head; its first column stays in sight."""
    lines = [f"<tr>{''.join(f'<th>{breakable(cell)}</th>' for cell in head)}</tr>"]
    lines += [
        f"<tr><td>{breakable(first)}</td>{''.join(f'<td>{escape(cell)}</td>' for cell in rest)}</tr>"
        for first, *rest in rows
    ]
    return scrolling(f'<table class="first columns">{"".join(lines)}</table>', label)


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and what they are."""
    lines = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f'<table class="words">{"".join(lines)}</table>'


def typed(command: str) -> str:
    """A command, whose lines end between its words and not within an option."""
    return f"<pre>{' '.join(f'<span>{escape(word)}</span>' for word in command.split(' '))}</pre>"


def settings(title: str, config: Mapping[str, Any]) -> str:
    """A configuration, folded away."""
    text = yaml.safe_dump(without_secrets(config, HIDDEN), sort_keys=False, allow_unicode=True)
    return f"<details><summary>{escape(title)}</summary>\n<pre>{escape(text)}</pre></details>"


def breakable(name: str) -> str:
    """A long name of a setting or a file, which a narrow screen breaks between its words."""
    return re.sub(r"([._/-])", r"\1<wbr>", escape(name))
