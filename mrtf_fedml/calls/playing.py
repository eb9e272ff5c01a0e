"""A run in this process, from checked settings and data to a result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ..algorithms import algorithm_of
from ..data import TransductiveDataset
from ..models.fitness import check_fit, complete
from ..process.start import check_start, started_ranks
from ..randomness import forked
from ..rounds.store import RunStore
from ..settings import RunSettings
from ..settings.sections import Config
from .guest import say_what_takes_seconds, wants_bar
from .labeller import Labeller
from .result import Result, result_of


def played(
    config: Config,
    settings: RunSettings,
    dataset: TransductiveDataset,
    classes: Sequence[Any],
    model: nn.Module | None,
    progress: bool | None,
    keep: bool,
    resume: str | None = None,
) -> Result:
    """The run's result.

    Args:
        config: the sections.
        settings: the same, validated.
        dataset: the run's data.
        classes: the label of each class, as the caller knows it.
        model: the caller's own; None makes the one that `settings.model` names.
        progress: a bar, or none; None where somebody watches.
        keep: whether the run's folder stays.
        resume: the folder of a run to go on with.
    """
    settings = settings.with_clients(dataset.client_num)
    # Made once for its checks: everything that can be wrong with its settings is found here.
    refine_on = getattr(algorithm_of(settings).own, "refine_on", "server")
    check_start(settings.common.training_type, settings.common.backend, refine_on, started_ranks())
    shown = wants_bar(progress)
    say_what_takes_seconds(shown)
    from ..fedml_bridge.launcher import launch, model_of

    net = model_of(settings, dataset) if model is None else _fitting(model, dataset, settings.common.random_seed)
    run_dir = launch(config, settings, dataset, resume=resume, model=net, progress=shown)
    labeller = Labeller(net, dataset.preprocessing, dataset.input_shape, classes)
    return result_of(RunStore.open(Path(run_dir or "")), labeller, classes, dataset.ids, keep)


def _fitting(model: nn.Module, dataset: TransductiveDataset, seed: int) -> nn.Module:
    """The caller's model, tried on a few samples."""
    name, example = f"the model ({type(model).__name__})", dataset.example_inputs[:2]
    with forked(seed, "initial weights"):
        complete(model, example, name)
    check_fit(model, example, dataset.class_num, name)
    return model
