"""`mrtf_fedml.label`: labels for arrays of the calling program, from clients that it holds too."""

from __future__ import annotations

import copy
import difflib
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ..algorithms import import_algorithms
from ..config import RunSettings
from ..config.loader import apply_values, find_key
from ..config.schema import Config, section_keys
from ..data.in_memory import ARRAYS, from_arrays, list_clients
from ..data.loader import from_fedml, standardize_dataset
from ..errors import UserError
from .result import Result
from .run import preserve_process_state, run_dataset
from .teachers import label_with_teachers

#: The settings of `mrtf example own_npz`, for data in memory.
_DEFAULTS: Config = {
    "common_args": {"training_type": "simulation", "keep_features": False},
    "data_args": {"dataset": ARRAYS, "partition_method": "user"},
    "train_args": {"epochs": 3, "batch_size": 32},
    "comm_args": {"backend": "sp"},
    "mrtf_args": {"refine_steps": 100},
}
#: The default of client_num_per_round is the number of clients, but at most this.
_MAX_CLIENTS_PER_ROUND = 10
#: Keys that the arguments determine, or that do not apply to one process.
_RESERVED_KEYS = ("client_num_in_total", "backend", "training_type", "comm_round", "model", "loader")
#: Keys of `data_args` that apply to arrays.
_DATA_KEYS = ("labels_file", "standardize", "fill_missing", "ignore_columns", "download")
#: The arguments of `label` that are not settings.
_ARGUMENTS = ("x_server", "clients", "model", "rounds", "y_server", "ids", "classes", "progress")
#: Models whose samples are token indices.
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
    teachers: Iterable[Any] | None = None,
    student: str | nn.Module | None = None,
    features: Any = None,
    **settings: Any,
) -> Result:
    """Label the server's samples with a model trained across the clients, in this process.

    The clients' labels may be strings, integers or booleans; results have the same type. Tables are encoded as CSV
    files are (categories, booleans, missing values with `fill_missing=True`) and standardized with the clients'
    statistics. Files are written only if `run_dir` is given.

    Args:
        x_server: the server's samples: an array, a tensor, a pandas table, a DataLoader, a torch Dataset; or a list of
            strings, which needs the setting `encoder`. Or FedML's dataset tuple of eight, which contains the clients;
            its test labels are then used for scoring.
        clients: one pair (x, y) per client, or a DataLoader or Dataset of such pairs.
        model: a name that `model_args.model` accepts, or a module, which is copied with its weights.
        rounds: number of rounds.
        y_server: the server's labels, if known. A complete list is used only for scoring. If some are missing (None,
            NaN, or -1 where it is no class), the others are labels that the server has: the model learns them, they
            correct the estimated accuracy, and these samples get them. (With teachers nothing learns them.)
        ids: names of the server's samples.
        classes: all possible labels, if the clients do not have them all.
        progress: whether a live bar is shown; by default on a terminal and in a notebook.
        teachers: finished models in place of clients; nothing is trained but the student. Each is a PyTorch module, a
            scikit-learn estimator, a function of the samples, an array of probabilities [M, C], or the path of an
            .onnx, .skops or .npy file; with its class list as a pair (model, classes) or a `Teacher`.
        student: with teachers, a model that learns their labels and then predicts; None: the teachers predict.
        features: with teachers, features of the samples [M, D], by which labels are clustered; the setting `encoder`
            computes them.
        settings: any other key of docs/reference/settings.md, such as learning_rate, epochs or preset.

    Raises:
        UserError: one sentence that names the mistake and the remedy.
    """
    if teachers is not None:
        if clients is not None:
            raise UserError(
                "label() takes clients, which train, or teachers, which are finished; leave one of them out"
            )
        return label_with_teachers(
            x_server,
            teachers,
            student=student,
            features=features,
            y=y_server,
            ids=ids,
            classes=classes,
            settings=settings,
        )
    if student is not None or features is not None:
        raise UserError("label() reads student and features only with teachers; the clients' model is model=...")
    is_fedml_tuple = _fedml_tuple(x_server) is not None
    if is_fedml_tuple and clients is not None:
        raise UserError("x_server is FedML's dataset tuple, which contains the clients; leave clients out")
    client_pairs = [] if is_fedml_tuple else list_clients(clients)
    config = _configuration(model, rounds, settings, None if is_fedml_tuple else len(client_pairs))
    with tempfile.TemporaryDirectory(prefix="mrtf-") as scratch, preserve_process_state():
        keep = config["common_args"].get("run_dir") is not None
        if not keep:
            config["common_args"]["run_dir"] = str(Path(scratch) / "run")
        resolved = RunSettings.from_config(config)
        if is_fedml_tuple:
            if any(value is not None for value in (y_server, ids, classes)):
                raise UserError("y_server, ids and classes are part of FedML's dataset tuple; leave them out")
            dataset = standardize_dataset(from_fedml(_fedml_tuple(x_server)), resolved)
            values: list[Any] = list(range(dataset.class_num))
            config["train_args"].setdefault(
                "client_num_per_round", min(_MAX_CLIENTS_PER_ROUND, dataset.client_num or 1)
            )
            resolved = RunSettings.from_config(config)
        else:
            dataset, values = from_arrays(
                x_server,
                client_pairs,
                resolved,
                y_server=y_server,
                ids=ids,
                classes=classes,
                tokens=_reads_tokens(model),
            )
        copied_model = copy.deepcopy(model) if isinstance(model, nn.Module) else None
        return run_dataset(resolved, dataset, values, copied_model, progress, keep)


def _configuration(model: Any, rounds: Any, settings: Mapping[str, Any], clients: int | None) -> Config:
    if isinstance(model, type) or not isinstance(model, str | nn.Module):
        what = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise UserError(f"model is {what}; give a name such as 'mlp', or an instance of a module")
    values = {key: value.item() if isinstance(value, np.generic) else value for key, value in settings.items()}
    import_algorithms({"": {key: value for key, value in values.items() if isinstance(value, str)}})
    for key in values:
        nearest = difflib.get_close_matches(key, _ARGUMENTS, n=1, cutoff=0.8)
        if nearest and not any(key in keys for keys in section_keys().values()):
            raise UserError(f"label() has no argument {key!r}; did you mean {nearest[0]!r}?")
        section, target = find_key(key, _DEFAULTS, "label(): ")
        if target in _RESERVED_KEYS or (section == "data_args" and target not in _DATA_KEYS) or section == "comm_args":
            raise UserError(
                f"label() does not accept {key}: its arguments determine the data and the clients; "
                "leave it out, or use mrtf_fedml.run(config)"
            )
    name = model if isinstance(model, str) else f"{type(model).__module__}:{type(model).__qualname__}"
    if isinstance(rounds, bool) or not isinstance(rounds, int | np.integer):
        raise UserError(f"rounds is {rounds!r}; give an integer of at least 1")
    config = apply_values(_DEFAULTS, {"model": name, "comm_round": int(rounds)}, "label()")
    if clients is not None:
        config = apply_values(config, {"client_num_per_round": min(_MAX_CLIENTS_PER_ROUND, clients)}, "label()")
        config["train_args"]["client_num_in_total"] = clients
    return apply_values(config, values, "label()")


def _fedml_tuple(value: Any) -> Any:
    """FedML's dataset tuple of eight, alone or paired with the number of classes; None for other values."""
    if isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[0], tuple | list):
        value = value[0]
    if isinstance(value, tuple | list) and len(value) == 8 and isinstance(value[4], Mapping):
        return value
    return None


def _reads_tokens(model: str | nn.Module) -> bool:
    if isinstance(model, str):
        return model.removeprefix("fedml:") in _TEXT_MODELS
    return any(isinstance(module, nn.Embedding) for module in model.modules())
