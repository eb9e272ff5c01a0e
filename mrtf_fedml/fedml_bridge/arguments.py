"""FedML's `args`: made from our configuration, read into our settings once, and shown to FedML as FedAvg's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedml.arguments import Arguments

from ..algorithms import Algorithm, import_named, lasting_name
from ..errors import UserError
from ..settings import RunSettings, section_keys
from ..settings.bounded_yaml import load_yaml
from ..settings.presets import OWN_DATA, with_preset
from ..settings.secrets import without_secrets
from ..settings.sections import Config, in_their_homes, ours_first


class MadeArguments(Arguments):
    """FedML's arguments from sections that we hold already: no file, and no command line of FedML's."""

    def __init__(self, config: Config, rank: int) -> None:
        self.set_attr_from_config(config)
        self.yaml_config_file = ""
        self.run_id = getattr(self, "run_id", "0")
        # The place is the command line's. FedML's agents write theirs into the file, and say so by a variable.
        self.rank, self.role = rank, "server" if rank == 0 else "client"
        if "FEDML_USING_MLOPS" in os.environ:
            self.using_mlops = os.environ["FEDML_USING_MLOPS"]


@dataclass(frozen=True)
class _Carried:
    """What was resolved, from which values, and what the user had written."""

    settings: RunSettings
    values: Mapping[str, Any]
    config: Config


def arguments_from(config: Config, settings: RunSettings, rank: int = 0) -> Arguments:
    """FedML's arguments for a run of ours, which carry the settings; FedML's own keys are the configuration's.

    Args:
        config: the user's sections.
        settings: the same, resolved.
        rank: this process's place; 0 is the server.
    """
    merged = {section: dict(values) for section, values in config.items()}
    for section, values in settings.to_config().items():
        merged.setdefault(section, {}).update(values)
    args = MadeArguments(ours_first(merged), rank)
    args.mrtf_carried = _Carried(settings, _values(args), {name: dict(values) for name, values in config.items()})
    return args


def settings_of(args: Any) -> RunSettings:
    """Our settings. They are resolved once and carried on `args`; a program that changes a value there is heard."""
    carried: _Carried | None = getattr(args, "mrtf_carried", None)
    if carried is not None and carried.values == _values(args):
        return carried.settings
    config = carried.config if carried is not None else _file_of(args)
    if carried is None and getattr(args, "preset", None) is None:
        # A project's data are its own: see RunSettings.from_config.
        config = with_preset(config, OWN_DATA)
    import_named({**config, "": {"federated_optimizer": getattr(args, "federated_optimizer", "")}})
    values = _values(args)
    settings = RunSettings.from_config(_as_set(config, values))
    args.mrtf_carried = _Carried(settings, values, config)
    return settings


def resolved_config(args: Any, algorithm: Algorithm) -> Config:
    """The user's sections with our keys resolved in them, for the run's folder; secrets stay out of it."""
    settings = algorithm.settings
    resolved = in_their_homes(without_secrets(args.mrtf_carried.config))
    for ours in (settings.to_config(), algorithm.sections()):
        for section, values in ours.items():
            resolved.setdefault(section, {}).update(values)
    # A report and a resume may be asked for from another folder.
    located = settings.data.located()
    resolved["data_args"].update({key: getattr(located, key) for key in resolved["data_args"] if hasattr(located, key)})
    # A pair wins over the word, and a short word means a user's class only where it was registered: a resume must find
    # what ran.
    resolved["train_args"]["federated_optimizer"] = lasting_name(type(algorithm), settings.train.federated_optimizer)
    return resolved


def _values(args: Any) -> dict[str, Any]:
    """The values of `args` under keys of ours."""
    known = {key for keys in section_keys().values() for key in keys}
    return {key: value for key, value in vars(args).items() if key in known}


def _as_set(config: Config, values: Mapping[str, Any]) -> Config:
    """The sections with the values that stand in `args` now; a key that no section has goes to its home.

    Two algorithms may have a key of the same name, each in its section; of these `args` has only the last one's value,
    which is no change to the others.
    """
    last = {key: value for keys in config.values() for key, value in keys.items()}
    set_since = {key: value for key, value in values.items() if key in last and value != last[key]}
    changed = {
        section: {key: set_since.get(key, value) for key, value in keys.items()} for section, keys in config.items()
    }
    written = {key for keys in changed.values() for key in keys}
    for section, keys in section_keys().items():
        for key in keys:
            if key in values and key not in written:
                changed.setdefault(section, {})[key] = values[key]
                written.add(key)
    return changed


def _file_of(args: Any) -> Config:
    """The sections that FedML has forgotten, read again from the user's file, once; empty where there is none."""
    paths = getattr(args, "yaml_paths", None)
    if not paths or not Path(paths[0]).is_file():
        return {}
    try:
        # FedML has read it before us; what it took is not ours to refuse by its size.
        config = load_yaml(Path(paths[0]).read_text(), largest=2**24) or {}
    except UserError as error:
        raise UserError(f"{str(paths[0])!r} {error}; mend it and try again") from None
    return {section: dict(values) for section, values in config.items() if isinstance(values, Mapping)}


class AsFedAvg:
    """The user's arguments, except that `federated_optimizer` reads FedAvg.

    FedML's aggregation and its defences branch on that word and end in an UnboundLocalError for any they do not
    know. All else, reading and writing, goes to the user's own object.
    """

    federated_optimizer = "FedAvg"

    def __init__(self, args: Any) -> None:
        object.__setattr__(self, "_args", args)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_args"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._args, name, value)
