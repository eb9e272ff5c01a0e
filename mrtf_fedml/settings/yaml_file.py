"""FedML's YAML as a mapping of sections: read from a file, changed from the command line."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable
from pathlib import Path

import yaml

from ..errors import UserError, nearest
from .mrtf import without_preset
from .sections import Config, in_their_homes, section_keys

_log = logging.getLogger(__name__)


def read_config(path: str | Path) -> Config:
    """The sections of a YAML file."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"there is no file {str(path)!r}; `mrtf example` lists configurations you can start from")
    try:
        config = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        place = getattr(error, "problem_mark", None)
        where = f" at line {place.line + 1}" if place else ""
        raise UserError(f"{str(path)!r} is not valid YAML{where}; mend it and try again") from None
    if not isinstance(config, dict) or not config:
        raise UserError(
            f"{str(path)!r} holds no sections; FedML's format is `section:` with `key: value` lines under it"
        )
    for section, values in config.items():
        if values is not None and not isinstance(values, dict):
            raise UserError(f"{str(path)!r}: section {section!r} must hold `key: value` lines, not {values!r}")
    return {section: dict(values or {}) for section, values in config.items()}


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
        section, key = _home_of(name.strip(), changed)
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise UserError(f"--set {name}: the value {text!r} is not valid YAML; put it in quotes") from None
        if key == "preset":
            changed[section] = without_preset(changed.get(section, {}))
        changed.setdefault(section, {})[key] = value
    return changed


def warn_of_near_misses(config: Config) -> None:
    """Tell of keys in FedML's sections that look like a misspelt key of ours; FedML may know them, so no more."""
    ours = {key for keys in section_keys().values() for key in keys}
    for section, values in config.items():
        for key in set(values) - ours:
            close = difflib.get_close_matches(str(key), ours, n=1, cutoff=0.88)
            if close:
                _log.warning("%s.%s is not a key of ours; did you mean %r?", section, key, close[0])


def _home_of(name: str, config: Config) -> tuple[str, str]:
    section, dot, key = name.rpartition(".")
    ours = section_keys()
    if dot:
        known = [*ours.get(section, []), *config.get(section, {})]
        if section not in ours and section not in config:
            raise UserError(f"--set {name}: there is no section {section!r}; {nearest(section, [*ours, *config])}")
        if key not in known:
            raise UserError(f"--set {name}: {section} has no key {key!r}; {nearest(key, known)}")
        return section, key
    for place in (config, ours):
        for candidate, keys in place.items():
            if key in keys:
                return candidate, key
    everywhere = {known_key for place in (config, ours) for keys in place.values() for known_key in keys}
    raise UserError(f"--set {key}: there is no such key; {nearest(key, sorted(everywhere))}")
