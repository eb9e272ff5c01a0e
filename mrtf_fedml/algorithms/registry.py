"""The registered algorithms, by name: ours, and those that a user registers or names as `package.module:Class`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ..config import RunSettings
from ..config.schema import declare_section
from ..config.user_code import import_object
from ..errors import UserError, suggest_name
from .base import Algorithm

#: With this prefix, a name that FedML has too means our algorithm.
OUR_PREFIX = "mrtf:"

_registered: dict[str, type[Algorithm]] = {}
_Class = TypeVar("_Class", bound=type[Algorithm])

#: The keys that name an algorithm.
_NAMING_KEYS = ("federated_optimizer", "base")


def register_algorithm(algorithm: _Class) -> _Class:
    """Make `federated_optimizer: <its name>` mean this class; also as a decorator.

    It may be called twice. A class that is defined again under the same module and name, as in a notebook, replaces the
    one before it.
    """
    if not (isinstance(algorithm, type) and issubclass(algorithm, Algorithm)):
        raise UserError(f"{algorithm!r} is no algorithm; derive a class from mrtf_fedml.Algorithm")
    label = f"the algorithm {algorithm.__module__}:{algorithm.__qualname__}"
    # An inherited name would silently replace the parent.
    if "name" not in vars(algorithm) or not str(algorithm.name).replace("_", "").isalnum():
        raise UserError(f"{label} needs a `name` of its own, of letters, digits and underscores")
    before = _registered.get(algorithm.name.lower())
    if before is not None and _identity(before) != _identity(algorithm):
        raise UserError(f"{label}: the name {algorithm.name!r} is {before.__module__}'s already; choose another")
    if not dataclasses.is_dataclass(algorithm.Settings):
        raise UserError(f"{label}: Settings must be a dataclass, with a default for every key")
    declare_section(algorithm.section_name(), algorithm.Settings, algorithm.name, label)
    _registered[algorithm.name.lower()] = algorithm
    return algorithm


def algorithm_by_name(name: str, key: str = "train_args.federated_optimizer") -> type[Algorithm]:
    """The algorithm of that name, in any case, with or without the prefix `mrtf:`; or `package.module:Class`.

    >>> algorithm_by_name("mrtf:FedAvg").name
    'FedAvg'
    """
    short = name[len(OUR_PREFIX) :] if name.lower().startswith(OUR_PREFIX) else name
    if ":" in short:
        algorithm = import_object(short, key)
        if not (isinstance(algorithm, type) and issubclass(algorithm, Algorithm)):
            raise UserError(f"{key} {name!r} is no algorithm; it must name a subclass of mrtf_fedml.Algorithm")
        return register_algorithm(algorithm)
    if short.lower() in _registered:
        return _registered[short.lower()]
    raise UserError(
        f"there is no algorithm {name!r} ({key}); {suggest_name(short, algorithm_names())} "
        "(package.module:Class names one of your own)"
    )


def algorithm_names() -> list[str]:
    """The names of all registered algorithms, in the order of their registration."""
    return [algorithm.name for algorithm in _registered.values()]


def importable_name(algorithm: type[Algorithm], name: str) -> str:
    """The name by which any later process finds the algorithm; `name`, what the user wrote, where it is one.

    >>> fedavg = algorithm_by_name("FedAvg")
    >>> importable_name(fedavg, "mrtf:FedAvg"), importable_name(fedavg, "FedNova")
    ('mrtf:FedAvg', 'FedAvg')
    """
    module, class_name = _identity(algorithm)
    if module.partition(".")[0] != __package__.partition(".")[0] and module != "__main__" and "<" not in class_name:
        return f"{module}:{class_name}"
    short = name[len(OUR_PREFIX) :] if name.lower().startswith(OUR_PREFIX) else name
    return name if short.lower() == algorithm.name.lower() else algorithm.name


def build_algorithm(settings: RunSettings) -> Algorithm:
    """The algorithm that a run's settings name; its own keys are validated here."""
    return algorithm_by_name(settings.train.federated_optimizer)(settings)


def import_algorithms(config: Mapping[str, Mapping[str, Any]], changes: Iterable[str] = ()) -> None:
    """Import the algorithms that a configuration, or a change to it, names as `package.module:Class`.

    From then on their keys are known: a wrong one is an error, and `--set` can change a right one.
    """
    names = [str(values[key]) for values in config.values() for key in _NAMING_KEYS if values and key in values]
    names += [value for key, _, value in (change.partition("=") for change in changes) if _is_naming_key(key)]
    for name in names:
        if ":" in name and not name.lower().startswith(OUR_PREFIX):
            algorithm_by_name(name)


def _is_naming_key(key: str) -> bool:
    return key.strip().rpartition(".")[2] in _NAMING_KEYS


def _identity(algorithm: type[Algorithm]) -> tuple[str, str]:
    return algorithm.__module__, algorithm.__qualname__
