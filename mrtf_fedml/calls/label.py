"""`mrtf_fedml.label`: labels for arrays that a program holds, from clients that it holds too. No file, no YAML."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ..algorithms import import_named
from ..data.from_memory import ARRAYS, clients_of, from_memory
from ..data.transductive import from_fedml, standardised
from ..errors import UserError
from ..settings import RunSettings
from ..settings.sections import Config
from ..settings.yaml_file import home_of_key, with_values
from .guest import as_guest
from .playing import played
from .result import Result

#: The beginning of `mrtf example own_npz`, for data that a program holds.
_START: Config = {
    "common_args": {"training_type": "simulation", "keep_features": False},
    "data_args": {"dataset": ARRAYS, "partition_method": "user"},
    "train_args": {"epochs": 3, "batch_size": 32},
    "comm_args": {"backend": "sp"},
    "mrtf_args": {"refine_steps": 100},
}
#: At most so many clients take part in a round where nobody says how many.
_AT_ONCE = 10
#: Keys that say what the arguments say already, or that one process has no use for.
_TAKEN = ("client_num_in_total", "backend", "training_type", "comm_round", "model", "loader")
#: Of `data_args`, what arrays leave open.
_OPEN = ("standardize",)
#: Models whose samples are indices of letters.
_TEXT_MODELS = ("charlstm", "rnn", "rnn_fed_shakespeare")


def label(
    x_server: Any,
    clients: Any = None,
    model: str | nn.Module = "mlp",
    rounds: int = 50,
    *,
    y_server: Any = None,
    ids: Iterable[Any] | None = None,
    classes: Iterable[Any] | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Result:
    """Label the server's samples by a federation of clients, all of it in this process.

    The clients' labels may be texts, whole numbers or truths; they come back as they were. Tables are standardised by
    the clients' own statistics. Nothing is written unless `run_dir` says where.

    Args:
        x_server: the server's samples: an array, a tensor, a pandas table, a DataLoader, a torch Dataset. Or FedML's
            tuple of eight, with all clients in it; its labels of the server's set then mark the answer.
        clients: a pair (x, y) for each client, or a DataLoader or Dataset of such pairs.
        model: a name that `model_args.model` takes, or a module of your own; it is copied, and starts from its weights.
        rounds: how many.
        y_server: the server's true labels where you have them: they mark the answer and do nothing else.
        ids: names of the server's samples.
        classes: every label there may be, where the clients do not have them all.
        progress: a live bar, or none; where it is not said, on a terminal and in a notebook.
        settings: any other key of docs/settings.md, such as learning_rate, epochs, federated_optimizer, preset.

    Raises:
        UserError: a sentence that names what is wrong, and the remedy.
    """
    is_eight = _eight(x_server) is not None
    if is_eight and clients is not None:
        raise UserError("x_server is FedML's tuple of eight, which has the clients in it; leave clients out")
    everyone = [] if is_eight else clients_of(clients)
    config = _configuration(model, rounds, settings, None if is_eight else len(everyone))
    with tempfile.TemporaryDirectory(prefix="mrtf-") as scratch, as_guest():
        keep = config["common_args"].get("run_dir") is not None
        if not keep:
            config["common_args"]["run_dir"] = str(Path(scratch) / "run")
        resolved = RunSettings.from_config(config)
        if is_eight:
            if any(thing is not None for thing in (y_server, ids, classes)):
                raise UserError("y_server, ids and classes are in FedML's tuple of eight; leave them out")
            dataset = standardised(from_fedml(_eight(x_server)), resolved)
            values: list[Any] = list(range(dataset.class_num))
            config["train_args"].setdefault("client_num_per_round", min(_AT_ONCE, dataset.client_num or 1))
            resolved = RunSettings.from_config(config)
        else:
            dataset, values = from_memory(
                x_server, everyone, resolved, y_server=y_server, ids=ids, classes=classes, tokens=_reads_indices(model)
            )
        own = copy.deepcopy(model) if isinstance(model, nn.Module) else None
        return played(config, resolved, dataset, values, own, progress, keep)


def _configuration(model: Any, rounds: Any, settings: Mapping[str, Any], clients: int | None) -> Config:
    if isinstance(model, type) or not isinstance(model, str | nn.Module):
        what = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise UserError(f"model is {what}; give a name such as 'mlp', or a module that is made already")
    values = {key: value.item() if isinstance(value, np.generic) else value for key, value in settings.items()}
    import_named({"": {key: value for key, value in values.items() if isinstance(value, str)}})
    for key in values:
        section, meant = home_of_key(key, _START, "label(): ")
        if meant in _TAKEN or (section == "data_args" and meant not in _OPEN) or section == "comm_args":
            raise UserError(
                f"label() has no use for {key}: the data, the clients and the process are given by its arguments; "
                "leave it out, or use mrtf_fedml.run(config)"
            )
    name = model if isinstance(model, str) else f"{type(model).__module__}:{type(model).__qualname__}"
    if isinstance(rounds, bool) or not isinstance(rounds, int | np.integer):
        raise UserError(f"rounds is {rounds!r}; give a whole number, at least 1")
    config = with_values(_START, {"model": name, "comm_round": int(rounds)}, "label()")
    if clients is not None:
        config = with_values(config, {"client_num_per_round": min(_AT_ONCE, clients)}, "label()")
        config["train_args"]["client_num_in_total"] = clients
    return with_values(config, values, "label()")


def _eight(given: Any) -> Any:
    """FedML's tuple of eight, alone or together with the number of classes; None where it is none."""
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], tuple | list):
        given = given[0]
    if isinstance(given, tuple | list) and len(given) == 8 and isinstance(given[4], Mapping):
        return given
    return None


def _reads_indices(model: str | nn.Module) -> bool:
    if isinstance(model, str):
        return model.removeprefix("fedml:") in _TEXT_MODELS
    return any(isinstance(module, nn.Embedding) for module in model.modules())
