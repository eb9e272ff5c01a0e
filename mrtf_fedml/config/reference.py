"""The settings reference (docs/reference/settings.md), generated from the dataclasses and their comments."""

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
from .schema import SECTION_CLASSES, algorithm_sections, section_of

_HEADER = "| key | values | default | what it means |\n|---|---|---|---|\n"
_TYPE_NAMES = {bool: "`true` or `false`", int: "integer", float: "number", str: "string"}


def settings_reference(owners: Mapping[type[Any], str]) -> str:
    """The tables of all sections; those of every run come first.

    Args:
        owners: settings class -> algorithm name, for the algorithms to list.
    """
    sections: dict[str, list[str]] = {}
    for section, part in SECTION_CLASSES.values():
        rows = _rows(part)
        for key, row in rows.items():
            sections.setdefault(section_of(key, section), []).append(row)
    pages = {section: _HEADER + "".join(rows) for section, rows in sections.items()}
    for section, settings in algorithm_sections():
        if settings in owners and dataclasses.fields(settings):
            table = f"### {owners[settings]}\n\n{_HEADER}{''.join(_rows(settings).values())}"
            pages[section] = "\n".join(filter(None, [pages.get(section), table, _presets(settings)]))
    return "\n".join(f"## `{section}`\n\n{page}" for section, page in pages.items())


def field_comments(settings: type[Any]) -> dict[str, str]:
    """The `#:` comment above each field of a dataclass, by field name; empty where there is none.

    >>> from .sections import PrivacySettings
    >>> field_comments(PrivacySettings)["enable_dp"]
    "FedML's differential privacy. If it is on, `sigma` and `delta` are FedML's, and ours do nothing."
    """
    parents = [parent for parent in settings.__mro__[1:] if dataclasses.is_dataclass(parent)]
    if parents:
        return {**field_comments(parents[0]), **_own_comments(settings)}
    return _own_comments(settings)


def _own_comments(settings: type[Any]) -> dict[str, str]:
    """The comments of the fields that the class itself defines."""
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


def describe_type(kind: Any) -> str:
    """A field's type in words.

    >>> from .types import PositiveFraction, PositiveInt
    >>> describe_type(PositiveInt), describe_type(PositiveFraction | None), describe_type(Literal["sgd", "adam"])
    ('integer, 1 or more', 'number above 0, at most 1', '`sgd` or `adam`')
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(describe_type(part) for part in parts if part is not type(None))
    if origin is Annotated:
        return describe_type(parts[0]) + _bounds(parts[1:])
    if origin is Literal:
        words = [f"`{str(value).lower() if isinstance(value, bool) else value}`" for value in parts]
        return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
    if origin is dict:
        return f"mapping of {describe_type(parts[0])} to one of these"
    if origin is list:
        return f"list of {describe_type(parts[0])}s"
    return _TYPE_NAMES[kind]


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
    """The table row of each key."""
    kinds, comments = get_type_hints(settings, include_extras=True), field_comments(settings)
    rows = {}
    for field in dataclasses.fields(settings):
        cells = (f"`{field.name}`", describe_type(kinds[field.name]), _default(field), comments[field.name])
        rows[field.name] = "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    return rows


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if value is dataclasses.MISSING:
        assert field.default_factory is not dataclasses.MISSING
        value = field.default_factory()
    if value is None:
        return "not set"
    return f"`{_as_yaml(value)}`"


def _presets(settings: type[Any]) -> str:
    """The list of presets, for the settings that have them."""
    if settings is not MrTFSettings:
        return ""
    lines = []
    for preset, values in PRESETS.items():
        changes = ", ".join(f"`{key}: {_as_yaml(value)}`" for key, value in values.items())
        lines.append(f"- `preset: {preset}` sets {changes or 'nothing (the defaults)'}.\n")
    return "".join(lines)


def _as_yaml(value: Any) -> str:
    """The value as YAML; 1e-05 would be read as a string."""
    if isinstance(value, bool):
        return str(value).lower()
    return format(Decimal(repr(value)), "f") if isinstance(value, float) else str(value)
