"""`mrtf_fedml.run`: run a configuration in this process and return its result as objects."""

from __future__ import annotations

import logging
import os
import random
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..algorithms import import_algorithms
from ..config import RunSettings
from ..config.loader import apply_values, read_config, warn_about_similar_keys
from ..config.schema import Config
from ..data import TransductiveDataset, load
from ..diagnostics.new_samples import NewSampleTrust
from ..errors import UserError
from ..fedml_bridge.runner import RunOptions, run_configuration
from ..models.checks import check_model_output, materialize_lazy_layers
from ..rng import fork_rng
from ..training.run_directory import RunDirectory
from .result import Classifier, Result, read_result


def run(
    config: Mapping[str, Mapping[str, Any]] | str | Path, *, progress: bool | None = None, **settings: Any
) -> Result:
    """Run a configuration in this process and return its result.

    The run directory is the one that `mrtf run` writes, at `run_dir` or under ./runs.

    Args:
        config: FedML's sections, as a mapping or as the path of a YAML file.
        progress: whether a live bar is shown; by default on a terminal and in a notebook.
        settings: changes to the configuration, as `--set` takes them: comm_round=3, learning_rate=0.05.

    Raises:
        UserError: one sentence that names the mistake and the remedy.
    """
    sections = _sections(config)
    import_algorithms({**sections, "": settings})
    changed = apply_values(sections, settings, "run()")
    warn_about_similar_keys(changed)
    resolved = RunSettings.from_config(changed)
    if resolved.common.training_type != "simulation" or resolved.common.backend != "sp":
        raise UserError(
            f"run() simulates all clients in this process, but training_type is {resolved.common.training_type} and "
            f"backend {resolved.common.backend}; use `mrtf run`, or run(config, training_type='simulation', "
            "backend='sp')"
        )
    with preserve_process_state():
        dataset = load(resolved)
        names = dataset.class_names
        classes: list[Any] = list(range(len(names))) if names == [str(c) for c in range(len(names))] else names
        return run_dataset(resolved, dataset, classes, None, progress, keep=True)


def _sections(config: Any) -> Config:
    if isinstance(config, str | os.PathLike):
        return read_config(Path(os.path.expanduser(config)))
    if not isinstance(config, Mapping):
        raise UserError(f"run() takes a mapping of sections or the path of a YAML file, not a {type(config).__name__}")
    loose = [str(key) for key, values in config.items() if values is not None and not isinstance(values, Mapping)]
    if loose:
        raise UserError(
            f"run(): {loose[0]!r} is in no section; put it into one, as in {{'train_args': {{...}}}}, or give it as a "
            "keyword, run(config, key=value)"
        )
    return {str(section): dict(values or {}) for section, values in config.items()}


def run_dataset(
    settings: RunSettings,
    dataset: TransductiveDataset,
    classes: Sequence[Any],
    model: nn.Module | None,
    progress: bool | None,
    keep: bool,
) -> Result:
    """Run the settings on the dataset and return the result.

    Args:
        settings: of the run, validated.
        dataset: the run's data.
        classes: the caller's label of each class.
        model: trained in place of the one that `settings.model` names.
        progress: whether a live bar is shown; None shows it on a terminal and in a notebook.
        keep: whether the run directory persists.
    """
    if model is not None:
        _check_model(model, dataset, settings.common.random_seed)
    shown = _shows_progress(progress)
    _announce_import(shown)
    finished = run_configuration(settings, RunOptions(progress=shown), dataset=dataset, model=model)
    assert finished.run_dir is not None
    assert finished.model is not None
    directory = RunDirectory.open(finished.run_dir)
    kept = NewSampleTrust.read(directory, settings.common.accept)
    classifier = Classifier(finished.model, dataset.preprocessing, dataset.input_shape, classes, kept)
    return read_result(directory, classifier, classes, dataset.ids, keep)


def _check_model(model: nn.Module, dataset: TransductiveDataset, seed: int) -> None:
    """Check the caller's model on two samples."""
    name, example = f"the model ({type(model).__name__})", dataset.example_inputs[:2]
    with fork_rng(seed, "initial weights"):
        materialize_lazy_layers(model, example, name)
    check_model_output(model, example, dataset.class_num, name)


@contextmanager
def preserve_process_state() -> Iterator[None]:
    """Restore random states, log levels and threads after the block: FedML seeds and silences the whole process.

    Within the block our own warnings go to the program's log handlers or to stderr.
    """
    root, ours = logging.getLogger(), logging.getLogger("mrtf_fedml")
    level, own_level, threads = root.level, ours.level, torch.get_num_threads()
    handlers = list(root.handlers)
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    if ours.level == logging.NOTSET:
        ours.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            # FedML's imports give many warnings about their own dependencies.
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_num_threads(threads)
        root.setLevel(level)
        root.handlers[:] = handlers
        ours.setLevel(own_level)


def _shows_progress(progress: bool | None) -> bool:
    """Whether a bar is shown: the given value, or whether this is a terminal or a notebook."""
    if progress is not None:
        return progress
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def _announce_import(shown: bool) -> None:
    """Print that FedML is loaded: its import takes seconds."""
    if shown and "fedml" not in sys.modules:
        print("loading FedML ...", file=sys.stderr, flush=True)
