"""`mrtf run`, in FedML: its arguments, its start, and one of our backends."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from torch import nn

from ..data import SiloDataset, TransductiveDataset
from ..models.text_shape import vocabulary_of
from ..process.instructions import has_bf16
from ..process.start import Place, agreement, place_in, world
from ..process.threads import divided_threads, set_threads
from ..settings import RunSettings
from ..settings.precision import settled
from ..settings.sections import Config
from .arguments import arguments_from
from .compatibility import check_version
from .devices import device_of_run
from .nccl import supplied
from .offline import initialise
from .runner import our_runner
from .zoo import build_model


def launch(
    config: Config,
    settings: RunSettings,
    dataset: TransductiveDataset | SiloDataset,
    resume: str | None = None,
    verbose: bool = False,
    rank: int = 0,
    model: nn.Module | None = None,
    progress: bool | None = None,
    profile: bool = False,
) -> Path | None:
    """Run to the end and return the run's folder; None for a silo, which has none.

    Args:
        config: the user's sections, FedML's own keys included.
        settings: the same, validated.
        dataset: what `settings.data` describes.
        resume: the folder of a run to go on with.
        verbose: let FedML's log through.
        rank: this party's place in a run across silos; 0 is the server.
        model: what is trained, in place of the one that `settings.model` names; it holds the answer afterwards.
        progress: a live bar, or nothing; None shows a bar on a terminal and a line per round elsewhere.
        profile: say where the CPU seconds go.
    """
    check_version()
    comm = world()
    place = Place() if comm is None else place_in(comm)
    threads = set_threads(settings.device.threads, None if comm is None else divided_threads(comm, place.local_ranks))
    precision = settled(settings.device.precision, _everybody_has_bf16(settings, comm))
    device_settings = dataclasses.replace(settings.device, threads=threads, precision=precision)
    settings = dataclasses.replace(settings, device=device_settings)
    args = arguments_from(config, settings, rank)
    args.mrtf_resume, args.mrtf_progress, args.mrtf_launched = resume, progress, True
    args.mrtf_profile = profile
    # FedML counts those chosen in a round; across silos and devices each is a party of its own.
    train = settings.train
    across = settings.common.training_type != "simulation"
    args.worker_num = train.client_num_in_total if across else train.client_num_per_round
    with agreement(), supplied():
        args = initialise(args, verbose)
    with agreement():
        device = device_of_run(args, place)
        if model is None and settings.common.training_type != "cross_device":
            model = model_of(settings, dataset)
    our_runner(args, device, dataset, model).run()
    return Path(args.mrtf_run_dir) if hasattr(args, "mrtf_run_dir") else None


def _everybody_has_bf16(settings: RunSettings, comm: Any) -> bool:
    """Of the ranks of a simulation each is asked; parties across silos and devices do not know each other's."""
    if settings.common.training_type != "simulation":
        return False
    return has_bf16() if comm is None else all(comm.allgather(has_bf16()))


def model_of(settings: RunSettings, dataset: TransductiveDataset | SiloDataset) -> nn.Module:
    """The model of the run; one that devices train is made with its .mnn file, by their server."""
    return build_model(
        settings.model,
        dataset.input_shape,
        dataset.class_num,
        settings.common.random_seed,
        example=dataset.example_inputs,
        vocabulary=vocabulary_of(dataset.example_inputs, getattr(dataset[2], "inputs", None)),
    )
