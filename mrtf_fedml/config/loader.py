"""Reading a YAML configuration, and changing it from the command line or from Python.

A configuration may come from anybody: nothing in it is executed, and its size and depth are bounded.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ..errors import UserError, shorten_repr, suggest_name
from .presets import RESOLVED_SECTION, explicit_mrtf_args, mark_explicit
from .schema import FEDML_KEYS, KEY_ALIASES, Config, normalize_sections, section_keys

_log = logging.getLogger(__name__)

#: Maximum number of bytes of a file, and of characters with all anchors expanded.
MAX_CONFIG_SIZE = 50_000
MAX_YAML_DEPTH = 50
_MAX_DIGITS = 1000
#: Maximum number of characters of a key in an error message.
_MAX_KEY_LENGTH = 100


def read_config(path: str | Path) -> Config:
    """The sections of a YAML file."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"there is no file {str(path)!r}; `mrtf example` lists configurations you can start from")
    if path.stat().st_size > MAX_CONFIG_SIZE:
        raise UserError(
            f"{str(path)!r} has more than {MAX_CONFIG_SIZE} bytes, too many for a configuration; is it another file?"
        )
    try:
        config = load_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read ({error.strerror}); make it readable and try again") from None
    except UnicodeDecodeError:
        raise UserError(f"{str(path)!r} is not valid YAML; correct it and try again") from None
    except UserError as error:
        raise UserError(f"{str(path)!r} {error}; correct it and try again") from None
    if not isinstance(config, dict) or not config:
        raise UserError(f"{str(path)!r} has no sections; FedML's format is `section:` with `key: value` lines under it")
    for section, values in config.items():
        if values is not None and not isinstance(values, dict):
            raise UserError(
                f"{str(path)!r}: section {shorten_repr(section)} must have `key: value` lines, "
                f"not one {type(values).__name__}"
            )
        for key in (section, *(values or {})):
            if not isinstance(key, str):
                raise UserError(
                    f"{str(path)!r}: {shorten_repr(key)} is not the name of a section or a key; put it in quotes"
                )
    return {section: dict(values or {}) for section, values in config.items()}


def apply_overrides(config: Config, overrides: Iterable[str]) -> Config:
    """The configuration after `--set [section.]key=value` for each override; values are parsed as YAML.

    The configuration is normalized first, so that an override replaces the value it means. A new `preset` replaces
    everything that the old one had set.

    >>> apply_overrides({"train_args": {"epochs": 1}}, ["epochs=3", "model_args.model=mlp"])
    {'train_args': {'epochs': 3}, 'model_args': {'model': 'mlp'}}
    """
    changed = normalize_sections(config)
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals:
            raise UserError(f"--set takes [section.]key=value, not {shorten_repr(override)}")
        section, key = find_key(name.strip(), changed)
        try:
            value = load_yaml(text)
        except UserError as error:
            raise UserError(f"--set {name}: the value {shorten_repr(text)} {error}; put it in quotes") from None
        _set_value(changed, section, key, value)
    return changed


def apply_values(config: Config, values: Mapping[str, Any], caller: str) -> Config:
    """As `apply_overrides`, for Python values; error messages about unknown keys start with `caller`.

    >>> apply_values({"train_args": {"epochs": 1}}, {"lr": 0.1}, "label()")
    {'train_args': {'epochs': 1, 'learning_rate': 0.1}}
    """
    changed = normalize_sections(config)
    for name, value in values.items():
        _set_value(changed, *find_key(name, changed, f"{caller}: "), value)
    return changed


def _set_value(config: Config, section: str, key: str, value: Any) -> None:
    if key == "preset":
        config[section] = explicit_mrtf_args(config)
        config.pop(RESOLVED_SECTION, None)
    mark_explicit(config, section, key)
    config.setdefault(section, {})[key] = value


def warn_about_similar_keys(config: Config) -> None:
    """Log a warning for keys in FedML's sections that look like a misspelt key of ours; FedML may know them."""
    ours = {key for keys in section_keys().values() for key in keys}
    for section, values in config.items():
        for key in set(values) - ours:
            matches = difflib.get_close_matches(str(key), ours, n=1, cutoff=0.88)
            if matches:
                _log.warning("%s.%s is not one of our keys; did you mean %r?", section, key, matches[0])


def find_key(name: str, config: Config, prefix: str = "--set ") -> tuple[str, str]:
    """The section and the key that `[section.]key` means.

    Raises:
        UserError: there is no such key; the message starts with `prefix` and names the nearest keys.
    """
    section, dot, key = name.rpartition(".")
    name = name if len(name) <= _MAX_KEY_LENGTH else f"{name[:_MAX_KEY_LENGTH]}..."
    ours = section_keys()
    if dot:
        keys = [*ours.get(section, []), *config.get(section, {}), *FEDML_KEYS.get(section, ())]
        sections = {*ours, *config, *FEDML_KEYS}
        if section not in sections:
            raise UserError(
                f"{prefix}{name}: there is no section {shorten_repr(section)}; "
                f"{suggest_name(section, sorted(sections))}"
            )
        key = key if key in keys else KEY_ALIASES.get(key, key)
        if key not in keys:
            raise UserError(f"{prefix}{name}: {section} has no key {shorten_repr(key)}; {suggest_name(key, keys)}")
        return section, key
    schemas: tuple[Mapping[str, Iterable[str]], ...] = (config, ours, FEDML_KEYS)
    for candidate in (key, KEY_ALIASES.get(key.lower().replace("-", "_"), key)):
        for schema in schemas:
            for candidate_section, keys_of_section in schema.items():
                if candidate in keys_of_section:
                    return candidate_section, candidate
    all_keys = {known for schema in schemas for keys_of_section in schema.values() for known in keys_of_section}
    raise UserError(f"{prefix}{name}: there is no such key; {_suggest_keys(key, sorted(all_keys))}")


def _suggest_keys(key: str, known: list[str]) -> str:
    """The nearest keys; a list of all keys would be too long."""
    containing = [name for name in known if len(key) > 2 and (key in name or name in key)]
    matches = difflib.get_close_matches(key[:_MAX_KEY_LENGTH], known, n=3)
    suggestions = list(dict.fromkeys([*matches, *containing]))[:4]
    if not suggestions:
        return "docs/reference/settings.md lists every key"
    return "did you mean " + " or ".join(repr(name) for name in suggestions) + "?"


def load_yaml(text: str, max_size: int = MAX_CONFIG_SIZE) -> Any:
    """The parsed YAML.

    >>> load_yaml("epochs: 3")
    {'epochs': 3}

    Raises:
        UserError: the text is invalid or too large; the message continues a sentence that starts with its source.
    """
    if len(text) > max_size:
        raise UserError(f"has more than {max_size} characters, too many for a configuration")
    try:
        return _construct(text, max_size)
    # PyYAML also raises Python's errors: for a date in month 13, or a number of 5000 digits.
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise UserError(f"is not valid YAML{where}") from None


def _construct(text: str, max_size: int) -> Any:
    _check_depth(text)
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        # Checked before objects are constructed: a few lines of anchors can expand beyond any memory.
        if _expanded_size(node, {}) > max_size:
            raise UserError(f"expands to more than {max_size} characters by its anchors, too many for a configuration")
        _check_duplicate_keys(node, set())
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_depth(text: str) -> None:
    # On the flat list of events: PyYAML builds nodes recursively, one call per level.
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_YAML_DEPTH:
            raise UserError(f"nests deeper than {MAX_YAML_DEPTH} levels, too deep for a configuration")


def _check_duplicate_keys(node: yaml.Node, visited: set[int]) -> None:
    """Reject a duplicate key, of which PyYAML would silently use the last."""
    if id(node) in visited or not isinstance(node, yaml.CollectionNode):
        return
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _check_duplicate_keys(value, visited)
        return
    keys: set[str] = set()
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
            if key.value in keys:
                raise UserError(f"has the key {shorten_repr(key.value)} twice, again at line {key.start_mark.line + 1}")
            keys.add(key.value)
        _check_duplicate_keys(value, visited)


def _expanded_size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Number of characters and entries of a node with its aliases expanded; `sizes` caches results by node id."""
    size = sizes.get(id(node))
    if size == 0:
        raise UserError("refers to itself by an anchor")
    if size is None:
        # Zero marks a node that is being counted; meeting it again means a cycle.
        sizes[id(node)] = 0
        if isinstance(node, yaml.MappingNode):
            size = 1 + sum(_expanded_size(key, sizes) + _expanded_size(value, sizes) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            size = 1 + sum(_expanded_size(value, sizes) for value in node.value)
        else:
            size = 1 + len(node.value)
            if node.tag == "tag:yaml.org,2002:int" and size > _MAX_DIGITS:
                # In base 16 Python parses numbers of any length, but cannot print them.
                raise UserError(f"has a number of {len(node.value)} digits, too many for a configuration")
        sizes[id(node)] = size
    return size
