"""Every key of ours as Markdown, read from the dataclasses themselves: docs/settings.md is what this renders."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from .mrtf import MrTFSettings
from .presets import PRESETS
from .sections import PARTS, declared_settings, home_of

_HEADER = "| key | values | default | what it means |\n|---|---|---|---|\n"
_WORDS = {bool: "`true` or `false`", int: "whole number", float: "number", str: "text"}


def settings_reference(owners: Mapping[type[Any], str]) -> str:
    """The tables of all sections, those of every run first.

    Args:
        owners: the algorithms' settings to be listed, each with its algorithm's name.
    """
    sections: dict[str, list[str]] = {}
    for section, part in PARTS.values():
        rows = _rows(part)
        for key, row in rows.items():
            sections.setdefault(home_of(key, section), []).append(row)
    pages = {section: _HEADER + "".join(rows) for section, rows in sections.items()}
    for section, settings in declared_settings():
        if settings in owners and dataclasses.fields(settings):
            table = f"### {owners[settings]}\n\n{_HEADER}{''.join(_rows(settings).values())}"
            pages[section] = "\n".join(filter(None, [pages.get(section), table, _presets(settings)]))
    return "\n".join(f"## `{section}`\n\n{page}" for section, page in pages.items())


def comments_of(settings: type[Any]) -> dict[str, str]:
    """What the `#:` lines above each field of a dataclass say, by the field's name; empty where there are none.

    >>> from .privacy import PrivacySettings
    >>> comments_of(PrivacySettings)["enable_dp"]
    "FedML's own. Where it is on, `sigma` and `delta` are FedML's, and ours do nothing."
    """
    parents = [parent for parent in settings.__mro__[1:] if dataclasses.is_dataclass(parent)]
    if parents:
        return {**comments_of(parents[0]), **_own_comments(settings)}
    return _own_comments(settings)


def _own_comments(settings: type[Any]) -> dict[str, str]:
    """Those of the fields that the class itself has, without what it inherits."""
    source = textwrap.dedent(inspect.getsource(settings))
    lines = [line.strip() for line in source.splitlines()]
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    comments = {}
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first = last = node.lineno - 1
            while lines[first - 1].startswith("#:"):
                first -= 1
            comments[node.target.id] = " ".join(line.removeprefix("#:").strip() for line in lines[first:last])
    return comments


def kind_in_words(kind: Any) -> str:
    """A field's type, as a reader would say it.

    >>> from .kinds import Count, PositiveShare
    >>> kind_in_words(Count), kind_in_words(PositiveShare | None), kind_in_words(Literal["sgd", "adam"])
    ('whole number, 1 or more', 'number above 0, at most 1', '`sgd` or `adam`')
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(kind_in_words(part) for part in parts if part is not type(None))
    if origin is Annotated:
        return kind_in_words(parts[0]) + _bounds(parts[1:])
    if origin is Literal:
        words = [f"`{str(value).lower() if isinstance(value, bool) else value}`" for value in parts]
        return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
    if origin is dict:
        return f"mapping of {kind_in_words(parts[0])} to such a word"
    if origin is list:
        return f"list of {kind_in_words(parts[0])}s"
    return _WORDS[kind]


def _bounds(metadata: tuple[Any, ...]) -> str:
    bounds = {
        name: getattr(bound, name)
        for field in metadata
        for bound in getattr(field, "metadata", ())
        for name in ("gt", "ge", "lt", "le")
        if hasattr(bound, name)
    }
    lower = [f" above {bounds['gt']}"] if "gt" in bounds else []
    lower += [f", {bounds['ge']} or more"] if "ge" in bounds else []
    upper = [f", below {bounds['lt']}"] if "lt" in bounds else []
    upper += [f", at most {bounds['le']}"] if "le" in bounds else []
    return "".join([*lower, *upper])


def _rows(settings: type[Any]) -> dict[str, str]:
    """A line of the table for each key."""
    kinds, comments = get_type_hints(settings, include_extras=True), comments_of(settings)
    rows = {}
    for field in dataclasses.fields(settings):
        cells = (f"`{field.name}`", kind_in_words(kinds[field.name]), _default(field), comments[field.name])
        rows[field.name] = "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    return rows


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if value is dataclasses.MISSING:
        assert field.default_factory is not dataclasses.MISSING
        value = field.default_factory()
    if value is None:
        return "not given"
    return f"`{_as_yaml(value)}`"


def _presets(settings: type[Any]) -> str:
    """What each preset changes, below the table of the settings that have presets."""
    if settings is not MrTFSettings:
        return ""
    lines = []
    for preset, values in PRESETS.items():
        changes = ", ".join(f"`{key}: {_as_yaml(value)}`" for key, value in values.items())
        lines.append(f"- `preset: {preset}` sets {changes or 'nothing: it is the defaults'}.\n")
    return "".join(lines)


def _as_yaml(value: Any) -> str:
    """As a user would write it: YAML reads 1e-05 as a text."""
    if isinstance(value, bool):
        return str(value).lower()
    return format(Decimal(repr(value)), "f") if isinstance(value, float) else str(value)
