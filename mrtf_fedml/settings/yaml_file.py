"""FedML's YAML as a mapping of sections: read from a file, changed from the command line."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import UserError, nearest, shown
from .bounded_yaml import LARGEST, load_yaml
from .fedmls import FEDMLS_KEYS
from .mrtf import without_preset
from .sections import Config, in_their_homes, section_keys

_log = logging.getLogger(__name__)

#: Letters of a key that a sentence repeats.
_LONGEST_NAME = 100


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
        config = load_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read ({error.strerror}); let it be read and try again") from None
    except UnicodeDecodeError:
        raise UserError(f"{str(path)!r} is not valid YAML; mend it and try again") from None
    except UserError as error:
        raise UserError(f"{str(path)!r} {error}; mend it and try again") from None
    if not isinstance(config, dict) or not config:
        raise UserError(
            f"{str(path)!r} holds no sections; FedML's format is `section:` with `key: value` lines under it"
        )
    for section, values in config.items():
        if values is not None and not isinstance(values, dict):
            kind = type(values).__name__
            raise UserError(f"{str(path)!r}: section {shown(section)} must hold `key: value` lines, not one {kind}")
        strange = [key for key in (section, *(values or {})) if not isinstance(key, str)]
        if strange:
            raise UserError(f"{str(path)!r}: {shown(strange[0])} is no name of a section or a key; put it in quotes")
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
            raise UserError(f"--set takes [section.]key=value, not {shown(change)}")
        section, key = _home_of(name.strip(), changed)
        try:
            value = load_yaml(text)
        except UserError as error:
            raise UserError(f"--set {name}: the value {shown(text)} {error}; put it in quotes") from None
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
    name = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."
    ours = section_keys()
    if dot:
        known = [*ours.get(section, []), *config.get(section, {}), *FEDMLS_KEYS.get(section, ())]
        sections = {*ours, *config, *FEDMLS_KEYS}
        if section not in sections:
            raise UserError(f"--set {name}: there is no section {shown(section)}; {nearest(section, sorted(sections))}")
        if key not in known:
            raise UserError(f"--set {name}: {section} has no key {shown(key)}; {nearest(key, known)}")
        return section, key
    places: tuple[Mapping[str, Iterable[str]], ...] = (config, ours, FEDMLS_KEYS)
    for place in places:
        for candidate, keys in place.items():
            if key in keys:
                return candidate, key
    everywhere = {known_key for place in places for keys in place.values() for known_key in keys}
    raise UserError(f"--set {name}: there is no such key; {nearest(key, sorted(everywhere))}")
