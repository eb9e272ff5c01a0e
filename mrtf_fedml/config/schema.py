"""Which section of the YAML holds which key. Each key belongs to one section.

The sections of every run are listed here; an algorithm declares its own section when it is registered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import UserError, shorten_repr, suggest_name
from .sections import (
    CommonSettings,
    DataSettings,
    DeviceSettings,
    ModelSettings,
    PrivacySettings,
    SiloSettings,
    TrackingSettings,
    TrainSettings,
)

#: A configuration: section -> key -> value.
Config = dict[str, dict[str, Any]]

#: Field of `RunSettings` -> (section, class), for the sections of every run.
SECTION_CLASSES: dict[str, tuple[str, type[Any]]] = {
    "common": ("common_args", CommonSettings),
    "data": ("data_args", DataSettings),
    "model": ("model_args", ModelSettings),
    "train": ("train_args", TrainSettings),
    "device": ("device_args", DeviceSettings),
    "silo": ("comm_args", SiloSettings),
    "privacy": ("dp_args", PrivacySettings),
    "tracking": ("tracking_args", TrackingSettings),
}

#: Keys that FedML puts in another section than the other keys of their class.
_OTHER_SECTION = {"backend": "comm_args", "frequency_of_the_test": "validation_args"}

#: Sections with FedML's keys only; a key there is FedML's even if we have one of the same name (`sigma` of CRFL).
_FEDML_SECTIONS = ("attack_args", "defense_args", "fhe_args")

#: Attributes that FedML sets on its arguments; it would overwrite a setting of the same name.
_FEDML_ATTRIBUTES = ("rank", "role", "comm", "process_id", "round_idx", "run_id", "worker_num", "yaml_paths", "version")

#: `null` is a value of these keys. For all other keys it means that the key is not set.
_NULLABLE_KEYS = {"clip_grad_norm"}

#: FedML's own keys that we read, by section. `--set` accepts them even if the configuration does not have them.
FEDML_KEYS: dict[str, tuple[str, ...]] = {
    "common_args": ("run_id", "scenario", "using_mlops"),
    "device_args": ("gpu_mapping_file", "gpu_mapping_key", "device_type"),
    "comm_args": (
        "grpc_ipconfig_path",
        "trpc_master_config_path",
        "customized_training_mqtt_config",
        "customized_training_s3_config",
        "enable_cuda_rpc",
        "cuda_rpc_gpu_mapping",
    ),
    "tracking_args": (
        "enable_tracking",
        "enable_tensorboard",
        "enable_wandb",
        "wandb_key",
        "wandb_project",
        "wandb_name",
    ),
    "attack_args": ("enable_attack", "attack_type", "attack_mode"),
    "defense_args": ("enable_defense", "defense_type", "byzantine_client_num", "norm_bound", "krum_param_m", "beta"),
    "dp_args": ("dp_solution_type", "mechanism_type", "epsilon", "sensitivity"),
}

#: Names of other libraries for our keys. They are accepted on the command line and in Python, not in files. A name that
#: is a key of the configuration means that key.
KEY_ALIASES = {
    "lr": "learning_rate",
    "rounds": "comm_round",
    "num_rounds": "comm_round",
    "n_rounds": "comm_round",
    "clients": "client_num_in_total",
    "num_clients": "client_num_in_total",
    "n_clients": "client_num_in_total",
    "clients_per_round": "client_num_per_round",
    "local_epochs": "epochs",
    "num_epochs": "epochs",
    "batch": "batch_size",
    "bs": "batch_size",
    "optimizer": "client_optimizer",
    "optimiser": "client_optimizer",
    "algorithm": "federated_optimizer",
    "seed": "random_seed",
    "wd": "weight_decay",
    "alpha": "partition_alpha",
    "partition": "partition_method",
    "data": "data_file",
    "standardise": "standardize",
    "normalize": "standardize",
    "out": "run_dir",
    "out_dir": "run_dir",
    "output_dir": "run_dir",
    "tau": "temperature",
    "num_threads": "threads",
}

#: Section -> settings classes of the registered algorithms.
_declared: dict[str, list[type[Any]]] = {}
#: Algorithm, in lower case -> its section and settings class.
_by_algorithm: dict[str, tuple[str, type[Any]]] = {}


def declare_section(section: str, settings: type[Any], algorithm: str, label: str) -> None:
    """Add an algorithm's settings to a section; `label` names the algorithm in error messages."""
    sections = {key: name for name, keys in _common_section_keys().items() for key in keys}
    for field in dataclasses.fields(settings):
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UserError(f"{label}: the key {field.name!r} of its Settings needs a default")
        if sections.get(field.name, section) != section or field.name in _FEDML_ATTRIBUTES:
            raise UserError(
                f"{label}: the key {field.name!r} of its Settings has another meaning in "
                f"{sections.get(field.name, 'FedML')}; choose another name, since FedML keeps all keys in one namespace"
            )
    classes = _declared.setdefault(section, [])
    # A class that is defined again, as in a notebook, replaces the earlier one.
    classes[:] = [*(other for other in classes if _qualified_name(other) != _qualified_name(settings)), settings]
    _by_algorithm[algorithm.lower()] = section, settings


def algorithm_sections() -> list[tuple[str, type[Any]]]:
    """Section and settings class of all registered algorithms."""
    return [(section, settings) for section, classes in _declared.items() for settings in classes]


def sections_of_run(config: Config, algorithm: str) -> list[tuple[str, type[Any]]]:
    """Section and settings class of the run's algorithm, and of its base if its section names one.

    An algorithm given as `package.module:Class` is not known here; its section is validated when it is built.
    """
    own = _by_algorithm.get(_without_prefix(algorithm))
    if own is None:
        return []
    base = config.get(own[0], {}).get("base")
    below = _by_algorithm.get(_without_prefix(base)) if isinstance(base, str) else None
    return [own] if below is None else [own, below]


def section_keys() -> dict[str, list[str]]:
    """Our keys by section."""
    keys = _common_section_keys()
    for section, classes in _declared.items():
        names = [field.name for settings in classes for field in dataclasses.fields(settings)]
        keys[section] = list(dict.fromkeys([*keys.get(section, []), *names]))
    return {section: names for section, names in keys.items() if names}


def section_of(key: str, section: str) -> str:
    """The section in which FedML puts a key of the class that belongs to `section`."""
    return _OTHER_SECTION.get(key, section)


def normalize_sections(config: Mapping[str, Mapping[str, Any] | None]) -> Config:
    """The configuration with each of our keys in its own section, whichever section the user put it in.

    >>> normalize_sections({"train_args": {"run_dir": "out", "epochs": 2}})
    {'train_args': {'epochs': 2}, 'common_args': {'run_dir': 'out'}}

    Raises:
        UserError: a key has different values in two sections, or an algorithm's section has an unknown key.
    """
    normalized: Config = {section: dict(values or {}) for section, values in config.items()}
    keys = section_keys()
    sections = {key: section for section in reversed(list(keys)) for key in keys[section]}
    # No FedML code uses these sections, so that an unknown key in them is an error.
    algorithm_only = set(_declared) - set(_common_section_keys())
    for section, values in list(normalized.items()):
        if section in _FEDML_SECTIONS:
            continue
        if section in algorithm_only:
            for key in values:
                if key not in keys[section]:
                    raise UserError(
                        f"{section} has no key {shorten_repr(key)}; {suggest_name(str(key), keys[section])}"
                    )
            continue
        for key in [key for key in values if sections.get(key, section) != section]:
            if key in keys.get(section, []):
                continue
            target = normalized.setdefault(sections[key], {})
            value = values.pop(key)
            if key in target and target[key] != value:
                raise UserError(
                    f"{key} is {shorten_repr(target[key])} in {sections[key]} and {shorten_repr(value)} in {section}; "
                    "keep the first and remove the other"
                )
            target[key] = value
    return normalized


def fedml_sections_last(config: Config) -> Config:
    """The configuration with FedML's own sections last: FedML keeps the last value of a key, which must be its own."""
    ours = {section: values for section, values in config.items() if section not in _FEDML_SECTIONS}
    return {**ours, **{section: config[section] for section in _FEDML_SECTIONS if section in config}}


def section_values(config: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """The keys that a normalized configuration sets for the field `name` of `RunSettings`."""
    section, section_class = SECTION_CLASSES[name]
    sections = {field.name: section_of(field.name, section) for field in dataclasses.fields(section_class)}
    values = {key: config[home][key] for key, home in sections.items() if key in config.get(home, {})}
    return {key: value for key, value in values.items() if value is not None or key in _NULLABLE_KEYS}


def field_values(settings: Any) -> dict[str, Any]:
    """A dataclass's fields by name."""
    return {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}


def _common_section_keys() -> dict[str, list[str]]:
    """The keys of the sections of every run, by section."""
    keys: dict[str, list[str]] = {section: [] for section, _ in SECTION_CLASSES.values()}
    for section, section_class in SECTION_CLASSES.values():
        for field in dataclasses.fields(section_class):
            keys.setdefault(section_of(field.name, section), []).append(field.name)
    return keys


def is_user_algorithm(algorithm: str) -> bool:
    """Whether the algorithm's settings class is the user's own, with defaults of its own."""
    name = _without_prefix(algorithm)
    own = _by_algorithm.get(name)
    return ":" in name or (own is not None and not own[1].__module__.startswith("mrtf_fedml."))


def _without_prefix(algorithm: str) -> str:
    """An algorithm's name in lower case without `mrtf:`."""
    return algorithm.lower().removeprefix("mrtf:")


def _qualified_name(settings: type[Any]) -> tuple[str, str]:
    return settings.__module__, settings.__qualname__
