"""FedML's `args`: made from our settings, read into our settings once, and checked for options that cannot combine."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedml
from fedml.arguments import Arguments
from fedml.core.dp.common.constants import DP_CDP, DP_CLIP, NBAFL_DP
from fedml.runner import FedMLRunner

from ..algorithms import Algorithm, import_algorithms
from ..config import RunSettings, section_keys
from ..config.loader import load_yaml
from ..config.presets import OWN_DATA, with_preset
from ..config.schema import Config, fedml_sections_last
from ..errors import UserError

_log = logging.getLogger(__name__)

TESTED_VERSION = "0.9.6"

#: The parameters of FedMLRunner.__init__ that `register` replaces.
RUNNER_PARAMETERS = (
    "self",
    "args",
    "device",
    "dataset",
    "model",
    "client_trainer",
    "server_aggregator",
    "algorithm_flow",
)


class RunArguments(Arguments):
    """FedML's arguments from sections in memory, without a file and without FedML's command line."""

    def __init__(self, config: Config, rank: int) -> None:
        self.set_attr_from_config(config)
        self.yaml_config_file = ""
        self.run_id = getattr(self, "run_id", "0")
        # The command line gives the rank. FedML's agents write theirs into the file, and set a variable.
        self.rank, self.role = rank, "server" if rank == 0 else "client"
        if "FEDML_USING_MLOPS" in os.environ:
            self.using_mlops = os.environ["FEDML_USING_MLOPS"]


@dataclass(frozen=True)
class _Resolved:
    """Settings, and the values of `args` from which they were resolved."""

    settings: RunSettings
    values: Mapping[str, Any]


def make_arguments(settings: RunSettings, rank: int = 0) -> Arguments:
    """FedML's arguments for a run of ours; they carry the settings, and FedML's own keys as the user wrote them.

    Args:
        settings: of the run.
        rank: of this process; 0 is the server.
    """
    merged: Config = {section: dict(values) for section, values in settings.explicit.items()}
    for section, values in settings.to_config().items():
        merged.setdefault(section, {}).update(values)
    args = RunArguments(fedml_sections_last(merged), rank)
    args.mrtf_settings = _Resolved(settings, _known_values(args))
    # FedML counts the clients of a round; across silos and devices each client is a party of its own.
    is_simulation = settings.common.training_type == "simulation"
    args.worker_num = settings.train.client_num_per_round if is_simulation else settings.train.client_num_in_total
    return args


def settings_of(args: Any) -> RunSettings:
    """Our settings. They are resolved once and kept on `args`, and again only after a program changed a value there."""
    resolved: _Resolved | None = getattr(args, "mrtf_settings", None)
    values = _known_values(args)
    if resolved is not None and resolved.values == values:
        return resolved.settings
    config = _read_file(args) if resolved is None else resolved.settings.explicit
    if resolved is None and getattr(args, "preset", None) is None:
        # A project brings its own data: see RunSettings.from_config.
        config = with_preset(config, OWN_DATA)
    import_algorithms({**config, "": {"federated_optimizer": getattr(args, "federated_optimizer", "")}})
    settings = RunSettings.from_config(_with_values(config, values))
    args.mrtf_settings = _Resolved(settings, values)
    return settings


def check_version() -> None:
    """Warn of a FedML version that is not tested; refuse one whose FedMLRunner differs."""
    version = getattr(fedml, "__version__", "of unknown version")
    if tuple(inspect.signature(FedMLRunner.__init__).parameters) != RUNNER_PARAMETERS:
        raise UserError(
            f"FedML {version} has another FedMLRunner than {TESTED_VERSION}; install that: pip install "
            f"fedml=={TESTED_VERSION}"
        )
    if version != TESTED_VERSION:
        _log.warning("FedML %s is installed; mrtf_fedml is tested with %s only", version, TESTED_VERSION)


def check_fedml_options(args: Any, algorithm: Algorithm) -> None:
    """Refuse options of FedML's that contradict the algorithm."""
    if is_enabled(args, "enable_fhe"):
        raise UserError(
            "enable_fhe: with homomorphic encryption the server sees no model, and our algorithms read each model; "
            "set enable_fhe to false"
        )
    for option in ("enable_attack", "enable_defense"):
        if is_enabled(args, option) and algorithm.aggregates_payload:
            raise UserError(
                f"{option}: FedML changes the clients' weights, but the model of {algorithm.name} is made from other "
                f"numbers that the clients send; set {option} to false"
            )
        if is_enabled(args, option) and algorithm.settings.model.models is not None:
            raise UserError(
                f"{option}: FedML compares and changes weights of one model, but the clients have several "
                f"(model_args.models); set {option} to false"
            )
    if not is_enabled(args, "enable_dp"):
        return
    solution = str(getattr(args, "dp_solution_type", "")).strip()
    if solution == DP_CDP and algorithm.transductive:
        raise UserError(
            f"dp_solution_type {DP_CDP!r} adds noise to the average, but {algorithm.name} refines with the clients' "
            "models, which have none, so that the guarantee would not hold; use 'ldp', or federated_optimizer FedAvg"
        )
    if solution in (NBAFL_DP, DP_CLIP):
        raise UserError(
            f"dp_solution_type {solution!r}: FedML {TESTED_VERSION} never calls its noise, so that it would guarantee "
            "no privacy; use 'ldp' or 'cdp'"
        )


def check_clients(dataset: Any, clients: int) -> None:
    """Compare a project's own dataset with `client_num_in_total`, where one process holds all clients."""
    local = dataset[5] if isinstance(dataset, list | tuple) and len(dataset) == 8 else None
    if not isinstance(local, Mapping):
        return
    missing = [client for client in range(clients) if client not in local]
    if missing:
        raise UserError(
            f"train_args.client_num_in_total is {clients}, but the dataset holds {len(local)} clients (there is no "
            f"client {missing[0]}); set it to {len(local)} or load more"
        )
    if len(local) > clients:
        _log.warning(
            "the dataset holds %d clients but train_args.client_num_in_total is %d: the others never take part",
            len(local),
            clients,
        )


def is_enabled(args: Any, key: str) -> bool:
    """Whether a switch of FedML's is on, as a boolean or as a string."""
    return str(getattr(args, key, False)).lower() == "true"


def _known_values(args: Any) -> dict[str, Any]:
    """The values of `args` under keys of ours."""
    known = {key for keys in section_keys().values() for key in keys}
    return {key: value for key, value in vars(args).items() if key in known}


def _with_values(config: Mapping[str, Mapping[str, Any]], values: Mapping[str, Any]) -> Config:
    """The sections with the values that `args` has now; a key in no section goes to the section it belongs to.

    Two algorithms may have a key of the same name, each in its section. Of these `args` has only the last one's value,
    which does not change the others.
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


def _read_file(args: Any) -> Config:
    """The sections of the user's file, which FedML has flattened; empty where there is none."""
    paths = getattr(args, "yaml_paths", None)
    if not paths or not Path(paths[0]).is_file():
        return {}
    try:
        # FedML has read the file before, so that its size is no reason to refuse it.
        config = load_yaml(Path(paths[0]).read_text(), max_size=2**24) or {}
    except UserError as error:
        raise UserError(f"{str(paths[0])!r} {error}; correct it and try again") from None
    return {section: dict(values) for section, values in config.items() if isinstance(values, Mapping)}


class FedAvgArguments:
    """The user's arguments, except that `federated_optimizer` reads FedAvg.

    FedML's aggregation and its defences branch on that value and end in an UnboundLocalError for values that they do
    not know. Every other attribute is read from and written to the user's object.
    """

    federated_optimizer = "FedAvg"

    def __init__(self, args: Any) -> None:
        object.__setattr__(self, "_args", args)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_args"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._args, name, value)
