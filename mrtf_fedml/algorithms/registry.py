"""The algorithms there are, by name: ours, and whatever a user registers or names as `package.module:Class`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ..errors import UserError, nearest
from ..settings import RunSettings
from ..settings.named_object import named_object
from ..settings.sections import declare
from .base import Algorithm

#: Before a word of FedML's own, it asks for our version of that algorithm.
OUR_PREFIX = "mrtf:"

_registered: dict[str, type[Algorithm]] = {}
_Class = TypeVar("_Class", bound=type[Algorithm])

#: The keys that name an algorithm.
_NAMING_KEYS = ("federated_optimizer", "base")


def register_algorithm(algorithm: _Class) -> _Class:
    """Make `federated_optimizer: <its name>` mean this class; also as a decorator. Twice does no harm.

    A class of the same name takes the place of the one before it if it is the same class read again, as in a notebook.
    """
    if not (isinstance(algorithm, type) and issubclass(algorithm, Algorithm)):
        raise UserError(f"{algorithm!r} is no algorithm; derive a class from mrtf_fedml.Algorithm")
    label = f"the algorithm {algorithm.__module__}:{algorithm.__qualname__}"
    # An inherited name would take the parent's place, silently.
    if "name" not in vars(algorithm) or not str(algorithm.name).replace("_", "").isalnum():
        raise UserError(f"{label} needs a `name` of its own, of letters, digits and underscores")
    before = _registered.get(algorithm.name.lower())
    if before is not None and _identity(before) != _identity(algorithm):
        raise UserError(f"{label}: the name {algorithm.name!r} is {before.__module__}'s already; choose another")
    if not dataclasses.is_dataclass(algorithm.Settings):
        raise UserError(f"{label}: Settings must be a dataclass, with a default for every key")
    declare(algorithm.section_name(), algorithm.Settings, label)
    _registered[algorithm.name.lower()] = algorithm
    return algorithm


def algorithm_named(name: str, key: str = "train_args.federated_optimizer") -> type[Algorithm]:
    """The algorithm of that name, in any case, with or without the prefix `mrtf:`; or `package.module:Class`.

    >>> algorithm_named("mrtf:FedAvg").name
    'FedAvg'
    """
    short = name[len(OUR_PREFIX) :] if name.lower().startswith(OUR_PREFIX) else name
    if ":" in short:
        found = named_object(short, key)
        if not (isinstance(found, type) and issubclass(found, Algorithm)):
            raise UserError(f"{key} {name!r} is no algorithm; it must name a subclass of mrtf_fedml.Algorithm")
        return register_algorithm(found)
    if short.lower() in _registered:
        return _registered[short.lower()]
    raise UserError(
        f"there is no algorithm {name!r} ({key}); {nearest(short, algorithm_names())} "
        "(package.module:Class names one of your own)"
    )


def algorithm_names() -> list[str]:
    """The names of all algorithms that are registered, in the order in which they were."""
    return [algorithm.name for algorithm in _registered.values()]


def lasting_name(algorithm: type[Algorithm], word: str) -> str:
    """The word by which any later process finds the algorithm; the user's own word, where it is one.

    >>> lasting_name(algorithm_named("FedAvg"), "mrtf:FedAvg"), lasting_name(algorithm_named("FedAvg"), "FedNova")
    ('mrtf:FedAvg', 'FedAvg')
    """
    module, name = _identity(algorithm)
    if module.partition(".")[0] != __package__.partition(".")[0] and module != "__main__" and "<" not in name:
        return f"{module}:{name}"
    short = word[len(OUR_PREFIX) :] if word.lower().startswith(OUR_PREFIX) else word
    return word if short.lower() == algorithm.name.lower() else algorithm.name


def algorithm_of(settings: RunSettings) -> Algorithm:
    """The algorithm that a run's settings name, made from them; its own keys are validated here."""
    return algorithm_named(settings.train.federated_optimizer)(settings)


def import_named(config: Mapping[str, Mapping[str, Any]], changes: Iterable[str] = ()) -> None:
    """Import the algorithms that a configuration, or a change to it, names as `package.module:Class`.

    Their keys are known from then on, so that a wrong one is found and `--set` can change a right one.
    """
    given = [str(values[key]) for values in config.values() for key in _NAMING_KEYS if values and key in values]
    given += [value for name, _, value in (change.partition("=") for change in changes) if _names(name)]
    for word in given:
        if ":" in word and not word.lower().startswith(OUR_PREFIX):
            algorithm_named(word)


def _names(changed: str) -> bool:
    return changed.strip().rpartition(".")[2] in _NAMING_KEYS


def _identity(algorithm: type[Algorithm]) -> tuple[str, str]:
    return algorithm.__module__, algorithm.__qualname__
