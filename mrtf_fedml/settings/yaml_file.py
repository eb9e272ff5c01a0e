"""FedML's YAML as a mapping of sections: read from a file, changed from the command line."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError, nearest, shown
from .aliases import ALIASES
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
        section, key = home_of_key(name.strip(), changed)
        try:
            value = load_yaml(text)
        except UserError as error:
            raise UserError(f"--set {name}: the value {shown(text)} {error}; put it in quotes") from None
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
    name = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."
    ours = section_keys()
    if dot:
        known = [*ours.get(section, []), *config.get(section, {}), *FEDMLS_KEYS.get(section, ())]
        sections = {*ours, *config, *FEDMLS_KEYS}
        if section not in sections:
            raise UserError(
                f"{asker}{name}: there is no section {shown(section)}; {nearest(section, sorted(sections))}"
            )
        key = key if key in known else ALIASES.get(key, key)
        if key not in known:
            raise UserError(f"{asker}{name}: {section} has no key {shown(key)}; {nearest(key, known)}")
        return section, key
    places: tuple[Mapping[str, Iterable[str]], ...] = (config, ours, FEDMLS_KEYS)
    for word in (key, ALIASES.get(key.lower().replace("-", "_"), key)):
        for place in places:
            for candidate, keys in place.items():
                if word in keys:
                    return candidate, word
    everywhere = {known_key for place in places for keys in place.values() for known_key in keys}
    raise UserError(f"{asker}{name}: there is no such key; {_hint(key, sorted(everywhere))}")


def _hint(key: str, known: list[str]) -> str:
    """The nearest names; all of them are too many to read."""
    containing = [name for name in known if len(key) > 2 and (key in name or name in key)]
    close = list(dict.fromkeys([*difflib.get_close_matches(key[:_LONGEST_NAME], known, n=3), *containing]))[:4]
    if not close:
        return "docs/settings.md lists every key"
    return "did you mean " + " or ".join(repr(name) for name in close) + "?"
