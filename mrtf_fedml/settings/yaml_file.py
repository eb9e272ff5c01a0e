"""FedML's YAML as a mapping of sections: read from a file, changed from the command line."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ..errors import UserError, nearest
from .aliases import ALIASES
from .mrtf import without_preset
from .sections import Config, in_their_homes, section_keys

_log = logging.getLogger(__name__)

#: No configuration of a person's has so many bytes, nor so many letters when its anchors are written out.
LARGEST = 50_000
DEEPEST = 50


def read_config(path: str | Path) -> Config:
    """The sections of a YAML file."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"there is no file {str(path)!r}; `mrtf example` lists configurations you can start from")
    if path.stat().st_size > LARGEST:
        raise UserError(
            f"{str(path)!r} has more than {LARGEST} bytes, too many for a configuration; is it another file?"
        )
    try:
        config = _loaded(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read ({error.strerror}); let it be read and try again") from None
    # Beside its own errors YAML lets those of Python through: a date in month 13, a number of 5000 digits.
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
        if isinstance(error, UserError):
            raise UserError(f"{str(path)!r} {error}; mend it and try again") from None
        place = getattr(error, "problem_mark", None)
        where = f" at line {place.line + 1}" if place else ""
        raise UserError(f"{str(path)!r} is not valid YAML{where}; mend it and try again") from None
    if not isinstance(config, dict) or not config:
        raise UserError(
            f"{str(path)!r} holds no sections; FedML's format is `section:` with `key: value` lines under it"
        )
    for section, values in config.items():
        if values is not None and not isinstance(values, dict):
            kind = type(values).__name__
            raise UserError(f"{str(path)!r}: section {section!r} must hold `key: value` lines, not one {kind}")
        strange = [key for key in (section, *(values or {})) if not isinstance(key, str)]
        if strange:
            raise UserError(f"{str(path)!r}: {strange[0]!r} is no name of a section or a key; put it in quotes")
    return {section: dict(values or {}) for section, values in config.items()}


def _loaded(text: str) -> Any:
    _check_depth(text)
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        # Before anything is made of it: a few lines of anchors may stand for more than any memory holds.
        if _size(node, {}) > LARGEST:
            raise UserError(f"grows to more than {LARGEST} letters by its anchors, too many for a configuration")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_depth(text: str) -> None:
    # By its events, which come one after another: to make a node, YAML calls itself for each level.
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise UserError(f"nests deeper than {DEEPEST} levels, too deep for a configuration")


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """The letters and entries of a node with all that its aliases stand for; `sizes` are those known already."""
    known = sizes.get(id(node))
    if known == 0:
        raise UserError("refers to itself by an anchor")
    if known is None:
        # Zero says that it is being counted: whoever meets it now is inside of it.
        sizes[id(node)] = 0
        if isinstance(node, yaml.MappingNode):
            known = 1 + sum(_size(key, sizes) + _size(value, sizes) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            known = 1 + sum(_size(value, sizes) for value in node.value)
        else:
            known = 1 + len(node.value)
        sizes[id(node)] = known
    return known


def with_changes(config: Config, changes: Iterable[str]) -> Config:
    """The configuration after `--set [section.]key=value` for each change; the value is read as YAML.

    Keys of ours are moved to their own sections first, so that a change meets the value it means. Another `preset`
    takes the place of all that the old one had set.

    >>> with_changes({"train_args": {"epochs": 1}}, ["epochs=3", "model_args.model=mlp"])
    {'train_args': {'epochs': 3}, 'model_args': {'model': 'mlp'}}
    """
    changed = in_their_homes(config)
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals:
            raise UserError(f"--set takes [section.]key=value, not {change!r}")
        section, key = home_of_key(name.strip(), changed)
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise UserError(f"--set {name}: the value {text!r} is not valid YAML; put it in quotes") from None
        _put(changed, section, key, value)
    return changed


def with_values(config: Config, values: Mapping[str, Any], asker: str) -> Config:
    """The same for keys with values of Python's; `asker` is who is named where there is no such key.

    >>> with_values({"train_args": {"epochs": 1}}, {"lr": 0.1}, "label()")
    {'train_args': {'epochs': 1, 'learning_rate': 0.1}}
    """
    changed = in_their_homes(config)
    for name, value in values.items():
        _put(changed, *home_of_key(name, changed, f"{asker}: "), value)
    return changed


def _put(config: Config, section: str, key: str, value: Any) -> None:
    if key == "preset":
        config[section] = without_preset(config.get(section, {}))
    config.setdefault(section, {})[key] = value


def warn_of_near_misses(config: Config) -> None:
    """Tell of keys in FedML's sections that look like a misspelt key of ours; FedML may know them, so no more."""
    ours = {key for keys in section_keys().values() for key in keys}
    for section, values in config.items():
        for key in set(values) - ours:
            close = difflib.get_close_matches(str(key), ours, n=1, cutoff=0.88)
            if close:
                _log.warning("%s.%s is not a key of ours; did you mean %r?", section, key, close[0])


def home_of_key(name: str, config: Config, asker: str = "--set ") -> tuple[str, str]:
    """The section and the key that `[section.]key` means; where there is none, a sentence that `asker` begins."""
    section, dot, key = name.rpartition(".")
    ours = section_keys()
    if dot:
        known = [*ours.get(section, []), *config.get(section, {})]
        if section not in ours and section not in config:
            raise UserError(f"{asker}{name}: there is no section {section!r}; {nearest(section, [*ours, *config])}")
        key = key if key in known else ALIASES.get(key, key)
        if key not in known:
            raise UserError(f"{asker}{name}: {section} has no key {key!r}; {nearest(key, known)}")
        return section, key
    for word in (key, ALIASES.get(key.lower().replace("-", "_"), key)):
        for place in (config, ours):
            for candidate, keys in place.items():
                if word in keys:
                    return candidate, word
    everywhere = {known_key for place in (config, ours) for keys in place.values() for known_key in keys}
    raise UserError(f"{asker}{key}: there is no such key; {_hint(key, sorted(everywhere))}")


def _hint(key: str, known: list[str]) -> str:
    """The nearest names; all of them are too many to read."""
    containing = [name for name in known if len(key) > 2 and (key in name or name in key)]
    close = list(dict.fromkeys([*difflib.get_close_matches(key, known, n=3), *containing]))[:4]
    if not close:
        return "docs/settings.md lists every key"
    return "did you mean " + " or ".join(repr(name) for name in close) + "?"
