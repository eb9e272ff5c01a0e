"""FedML's `args`: made from our configuration, read back into our settings, and shown to FedML as FedAvg's."""

from __future__ import annotations

import dataclasses
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import yaml
from fedml.arguments import Arguments

from ..settings import MrTFSettings, RunSettings
from ..settings.secrets import without_secrets


def arguments_from(config_file: Path, rank: int = 0) -> Arguments:
    """FedML's own arguments, from a configuration file, without its command line."""
    role = "server" if rank == 0 else "client"
    command_line = Namespace(yaml_config_file=str(config_file), rank=rank, role=role, run_id="0")
    args = Arguments(command_line, override_cmd_args=True)
    # The place is the command line's. FedML's agents write theirs into the file, and say by a variable that they do.
    args.rank, args.role = rank, role
    if "FEDML_USING_MLOPS" in os.environ:
        args.using_mlops = os.environ["FEDML_USING_MLOPS"]
    return args


def settings_of(args: Any) -> RunSettings:
    """Our settings, from FedML's flattened arguments.

    FedML forgets the sections, so `mrtf_args` is read again from the file the arguments came from, to find keys that
    do not exist; the values are those of `args`, which a program may have changed since.
    """
    flat = dict(vars(args))
    config = _file_of(args)
    if config is None:
        names = [field.name for field in dataclasses.fields(MrTFSettings)]
        section = {name: flat[name] for name in names if name in flat}
    else:
        section = config.get("mrtf_args") or {}
    return RunSettings.from_flat(flat, {key: flat.get(key, value) for key, value in section.items()})


def resolved_config(args: Any, settings: RunSettings) -> dict[str, dict[str, Any]]:
    """The user's sections with our keys resolved in them, for the run's folder; secrets stay out of it."""
    config = _file_of(args) or {}
    resolved = without_secrets({section: values or {} for section, values in config.items()})
    for section, values in settings.to_config().items():
        resolved.setdefault(section, {}).update(values)
    return resolved


def _file_of(args: Any) -> dict[str, Any] | None:
    paths = getattr(args, "yaml_paths", None)
    if not paths or not Path(paths[0]).is_file():
        return None
    return yaml.safe_load(Path(paths[0]).read_text()) or {}


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
