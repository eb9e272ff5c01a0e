"""Which section of FedML's YAML holds which key of ours. Each key has one home.

The sections of every run are listed here; an algorithm declares its own when it is registered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import UserError, nearest, shown
from .comm import SiloSettings
from .common import CommonSettings
from .data import DataSettings
from .device import DeviceSettings
from .model import ModelSettings
from .privacy import PrivacySettings
from .train import TrainSettings

Config = dict[str, dict[str, Any]]

#: What every run has, by the names of `RunSettings`.
PARTS: dict[str, tuple[str, type[Any]]] = {
    "common": ("common_args", CommonSettings),
    "data": ("data_args", DataSettings),
    "model": ("model_args", ModelSettings),
    "train": ("train_args", TrainSettings),
    "device": ("device_args", DeviceSettings),
    "silo": ("comm_args", SiloSettings),
    "privacy": ("dp_args", PrivacySettings),
}

#: Keys that FedML writes in another section than the rest of their part.
_ELSEWHERE = {"backend": "comm_args", "frequency_of_the_test": "validation_args"}

#: Sections whose keys are FedML's alone, whatever they are called: CRFL's `sigma` is not ours.
_FEDMLS_SECTIONS = ("attack_args", "defense_args", "fhe_args")

#: Attributes of FedML's arguments that are no settings; a key of that name would be overwritten.
_FEDMLS_OWN = ("rank", "role", "comm", "process_id", "round_idx", "run_id", "worker_num", "yaml_paths", "version")

_declared: dict[str, list[type[Any]]] = {}


def ours_first(config: Config) -> Config:
    """The sections with FedML's own last: FedML keeps one value per key, and there it must be FedML's."""
    ours = {section: values for section, values in config.items() if section not in _FEDMLS_SECTIONS}
    return {**ours, **{section: config[section] for section in _FEDMLS_SECTIONS if section in config}}


def declare(section: str, settings: type[Any], label: str) -> None:
    """Let an algorithm's settings live in that section; `label` says whose they are, where they cannot."""
    homes = {key: home for home, keys in _sections_of_every_run().items() for key in keys}
    for field in dataclasses.fields(settings):
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UserError(f"{label}: the key {field.name!r} of its Settings needs a default")
        if homes.get(field.name, section) != section or field.name in _FEDMLS_OWN:
            raise UserError(
                f"{label}: the key {field.name!r} of its Settings means something else in "
                f"{homes.get(field.name, 'FedML')}; choose another name, since FedML keeps all keys in one place"
            )
    known = _declared.setdefault(section, [])
    # The same class read again, as in a notebook, takes the place of the one before it.
    known[:] = [*(other for other in known if _identity(other) != _identity(settings)), settings]


def declared_settings() -> list[tuple[str, type[Any]]]:
    """The settings of all registered algorithms, each with its section."""
    return [(section, settings) for section, declared in _declared.items() for settings in declared]


def section_keys() -> dict[str, list[str]]:
    """The keys of ours, by the section in which each is written."""
    keys = _sections_of_every_run()
    for section, declared in _declared.items():
        names = [field.name for settings in declared for field in dataclasses.fields(settings)]
        keys[section] = list(dict.fromkeys([*keys.get(section, []), *names]))
    return {section: names for section, names in keys.items() if names}


def in_their_homes(config: Mapping[str, Mapping[str, Any] | None]) -> Config:
    """The configuration with each key of ours in its own section, wherever the user wrote it.

    >>> in_their_homes({"train_args": {"run_dir": "out", "epochs": 2}})
    {'train_args': {'epochs': 2}, 'common_args': {'run_dir': 'out'}}

    Raises:
        UserError: a key stands in two sections with two values, or a section of ours has a key that does not exist.
    """
    tidy: Config = {section: dict(values or {}) for section, values in config.items()}
    keys = section_keys()
    homes = {key: section for section in reversed(list(keys)) for key in keys[section]}
    own = _sections_of_algorithms_alone()
    for section, values in list(tidy.items()):
        if section in _FEDMLS_SECTIONS:
            continue
        if section in own:
            for key in values:
                if key not in keys[section]:
                    raise UserError(f"{section} has no key {shown(key)}; {nearest(str(key), keys[section])}")
            continue
        for key in [key for key in values if homes.get(key, section) != section and key not in keys.get(section, [])]:
            home = tidy.setdefault(homes[key], {})
            value = values.pop(key)
            if key in home and home[key] != value:
                raise UserError(
                    f"{key} is {shown(home[key])} in {homes[key]} and {shown(value)} in {section}; keep the first and "
                    "remove the other"
                )
            home[key] = value
    return tidy


#: Elsewhere a key without a value is one that is not given; of these `null` is a value.
_NULL_MEANS_OFF = {"clip_grad_norm"}


def part_of(config: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """The keys of a part of every run that a tidy configuration gives."""
    section, part = PARTS[name]
    homes = {field.name: home_of(field.name, section) for field in dataclasses.fields(part)}
    given = {key: config[home][key] for key, home in homes.items() if key in config.get(home, {})}
    return {key: value for key, value in given.items() if value is not None or key in _NULL_MEANS_OFF}


def home_of(key: str, section: str) -> str:
    """The section in which FedML writes a key of the part that belongs to `section`."""
    return _ELSEWHERE.get(key, section)


def values_of(settings: Any) -> dict[str, Any]:
    """A dataclass's fields by name."""
    return {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}


def _sections_of_every_run() -> dict[str, list[str]]:
    keys: dict[str, list[str]] = {section: [] for section, _ in PARTS.values()}
    for section, part in PARTS.values():
        for field in dataclasses.fields(part):
            keys.setdefault(home_of(field.name, section), []).append(field.name)
    return keys


def _sections_of_algorithms_alone() -> set[str]:
    """Sections that no part of FedML writes into, so that a key we do not know is a mistake."""
    return set(_declared) - set(_sections_of_every_run())


def _identity(settings: type[Any]) -> tuple[str, str]:
    return settings.__module__, settings.__qualname__
