"""Run a configuration on the backend that it names: the one path of `mrtf run`, the Python API and FedML's FedMLRunner.

FedML is imported after settings, data and algorithm have been checked, since its import takes seconds.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..algorithms import Algorithm, algorithm_by_name
from ..callbacks.base import Callback
from ..config import RunSettings
from ..config.sections import resolve_auto_precision
from ..data import SiloDataset, TransductiveDataset, load_for_rank
from ..errors import UserError
from ..process.mpi import (
    RANKS_BACKENDS,
    RankInfo,
    agree_on_errors,
    check_backend,
    check_start,
    rank_info,
    world_communicator,
    world_size,
)
from ..process.threads import set_threads, threads_per_rank
from ..process.tuning import has_fast_bf16, pause_garbage_collector


@dataclass(frozen=True)
class RunOptions:
    """How a run is executed; nothing here changes its results.

    Attributes:
        resume: the directory of a run to continue.
        rank: this party's rank across silos and devices, 0 for the server; None in a simulation.
        verbose: whether FedML's log is shown.
        progress: True shows a progress bar, False nothing; None shows a bar on a terminal, else one line per round.
        profile: whether the CPU seconds of each phase are reported.
        watch: whether the run is shown on a live page.
        print_summary: whether the summary is printed at the end.
        callbacks: called in addition to those of `common_args.callbacks`.
    """

    resume: str | None = None
    rank: int | None = None
    verbose: bool = False
    progress: bool | None = None
    profile: bool = False
    watch: bool = False
    print_summary: bool = False
    callbacks: Sequence[Callback] = ()

    @contextmanager
    def serve_page(self, folder: Path) -> Iterator[None]:
        """With `watch`, serve the live page of the run in this folder while the block runs."""
        if not self.watch:
            yield
            return
        # Imported here, since few runs are watched.
        from ..watch.server import start_page

        page = start_page(folder)
        try:
            yield
        finally:
            page.stop()


@dataclass(frozen=True)
class RunResult:
    """What a run leaves behind.

    Attributes:
        run_dir: the run directory; None for a silo, which has none.
        model: the model; on the server it has the weights that predict. None where devices train.
    """

    run_dir: Path | None
    model: nn.Module | None


def run_configuration(
    settings: RunSettings,
    options: RunOptions | None = None,
    dataset: TransductiveDataset | SiloDataset | None = None,
    model: nn.Module | None = None,
) -> RunResult:
    """Run the settings to the end, in this process or as one process of several.

    Args:
        settings: of the run, validated.
        options: how it is executed.
        dataset: the run's data; loaded as `settings.data` says where none is given.
        model: trained in place of the one that `settings.model` names.
    """
    options = options or RunOptions()
    with agree_on_errors():
        check_backend(settings.common.training_type, settings.common.backend)
        check_start(settings.common.training_type, settings.common.backend, world_size())
        if dataset is None:
            dataset = load_for_rank(settings, options.rank)
        if options.rank is None and isinstance(dataset, TransductiveDataset):
            # Where clients are users, or come from a loader, the data give their number.
            settings = settings.with_client_count(dataset.client_num)
    algorithm, args, device, model = prepare_run(settings, options, dataset, model)
    from .participants import make_participant

    participant = make_participant(args, algorithm, device, dataset, model, options)
    participant.run()
    return RunResult(participant.run_dir, model)


def prepare_run(
    settings: RunSettings,
    options: RunOptions,
    dataset: TransductiveDataset | SiloDataset,
    model: nn.Module | None = None,
) -> tuple[Algorithm, Any, torch.device, nn.Module | None]:
    """The algorithm, FedML's arguments, the device and the model of this process; no file is written, no port opened.

    The model is None where devices train.
    """
    comm = world_communicator()
    rank = RankInfo() if comm is None else rank_info(comm)
    settings = _resolve_device_settings(settings, comm, rank)
    with agree_on_errors():
        algorithm = make_algorithm(algorithm_by_name(settings.train.federated_optimizer), settings)
    _import_fedml(options.verbose)
    from .args import check_version, make_arguments
    from .devices import select_device
    from .fedml_init import initialize
    from .participants import make_model

    with agree_on_errors():
        check_version()
        args = initialize(make_arguments(settings, options.rank or 0), options.verbose)
    with agree_on_errors():
        device = select_device(args, rank)
        if model is None and settings.common.training_type != "cross_device":
            model = make_model(settings, dataset)
    return algorithm, args, device, model


def make_algorithm(
    algorithm_class: type[Algorithm], settings: RunSettings, clients_only_train: bool = False
) -> Algorithm:
    """The process's algorithm object.

    Args:
        algorithm_class: of the algorithm.
        settings: of the run.
        clients_only_train: whether the clients cannot do more than train, as devices and trainers of a user's own.
    """
    if clients_only_train or settings.common.training_type == "cross_device":
        settings = dataclasses.replace(settings, clients_only_train=True)
    algorithm = algorithm_class(settings)
    is_over_ranks = settings.common.training_type == "simulation" and settings.common.backend in RANKS_BACKENDS
    if algorithm.reads_teachers_on_ranks and not is_over_ranks:
        raise UserError(
            "refine_on: teachers gives the server's inputs to the training ranks, which only a simulation with backend "
            "MPI may do; set refine_on: server (mrtf_args)"
        )
    return algorithm


def _resolve_device_settings(settings: RunSettings, comm: Any, rank: RankInfo) -> RunSettings:
    """The settings with the number of threads and the precision that this machine, and the other ranks, allow."""
    threads = set_threads(settings.device.threads, None if comm is None else threads_per_rank(comm, rank.local_ranks))
    has_bf16 = False
    # Parties across silos and devices do not know each other's processors.
    if settings.common.training_type == "simulation":
        has_bf16 = has_fast_bf16() if comm is None else all(comm.allgather(has_fast_bf16()))
    precision = resolve_auto_precision(settings.device.precision, has_bf16)
    return dataclasses.replace(
        settings, device=dataclasses.replace(settings.device, threads=threads, precision=precision)
    )


def _import_fedml(verbose: bool) -> None:
    with pause_garbage_collector(), warnings.catch_warnings():
        # FedML's imports warn at length about their own dependencies.
        warnings.simplefilter("default" if verbose else "ignore")
        from . import participants  # noqa: F401
