"""`mrtf run`: one run from a configuration to predictions and a report."""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

from ..algorithms import algorithm_of
from ..errors import UserError
from ..process.compiler import check_compiler
from ..process.failure import one_for_all
from ..process.imports import without_collecting
from ..process.logs import hold_log
from ..process.start import (
    agreement,
    check_backend,
    check_start,
    started_rank,
    started_ranks,
)
from ..rounds.ending import ending
from ..rounds.store import RunStore
from ..settings import RunSettings
from ..settings.sections import Config
from ..settings.yaml_file import read_config, warn_of_near_misses
from .configuration import changed


def run(options: argparse.Namespace) -> int:
    """Run what the options ask for, and print how it ended; under mpirun, as one rank of it."""
    with one_for_all():
        with agreement():
            config = _configuration(options)
            settings = RunSettings.from_config(config)
            rank = _rank(options, settings)
            if rank is None and started_rank() > 0:
                hold_log()
            warn_of_near_misses(config)
            # Made once for its checks: everything that can be wrong with its settings is found here.
            refine_on = getattr(algorithm_of(settings).own, "refine_on", "server")
            check_compiler(settings.device.compile)
            check_backend(settings.common.training_type, settings.common.backend)
            check_start(settings.common.training_type, settings.common.backend, refine_on, started_ranks())
        if rank is None:
            run_dir = _run(options, config, settings)
            if started_rank() == 0 and run_dir is not None:
                print(ending(RunStore.open(run_dir)))
            return 0
    # A party across silos ends by itself: the others go on, or are told.
    run_dir = _run(options, config, settings, rank)
    print(f"silo {rank}: the run is over" if run_dir is None else ending(RunStore.open(run_dir)))
    return 0


def _run(options: argparse.Namespace, config: Config, settings: RunSettings, rank: int | None = None) -> Path | None:
    with agreement():
        # Everything that can be wrong with the data is found before the seconds that FedML's import takes.
        from ..data import TransductiveDataset, load_for

        dataset = load_for(settings, rank)
        if rank is None and isinstance(dataset, TransductiveDataset):
            # Where clients are users, or come from a loader, the data say how many there are.
            settings = settings.with_clients(dataset.client_num)
    with without_collecting(), warnings.catch_warnings():
        # FedML's imports warn of their own dependencies at length; --verbose shows that too.
        warnings.simplefilter("default" if options.verbose else "ignore")
        from ..fedml_bridge.launcher import launch

    return launch(
        config,
        settings,
        dataset,
        resume=options.resume,
        verbose=options.verbose,
        rank=rank or 0,
        profile=options.profile,
    )


def _rank(options: argparse.Namespace, settings: RunSettings) -> int | None:
    """The process's place across silos or devices, by FedML's own flags or by mpirun; None in a simulation."""
    rank: int | None = options.rank
    if settings.common.training_type == "cross_device":
        if options.role == "client" or rank:
            raise UserError(
                "devices are phones, or emulated by `python -m mrtf_fedml.fedml_bridge.cross_device.emulate`; "
                "`mrtf run` is their server"
            )
        return 0
    if settings.common.training_type != "cross_silo":
        if rank is not None or options.role is not None:
            raise UserError("--rank and --role belong to training_type: cross_silo; leave them out")
        return None
    if settings.common.backend == "MPI":
        # mpirun says it, in a variable of Open MPI or of MPICH.
        rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")))
    if rank is None and options.role == "server":
        rank = 0
    if rank is None:
        raise UserError("a run across silos needs --role server, or --role client --rank R with R = 1, 2, ...")
    if options.role is not None and (rank == 0) != (options.role == "server"):
        raise UserError(f"--role {options.role} does not fit --rank {rank}; the server has rank 0, the silos 1, 2, ...")
    if not 0 <= rank <= settings.train.client_num_in_total:
        raise UserError(f"--rank {rank}: the ranks go from 0 (the server) to client_num_in_total (the last silo)")
    return rank


def _configuration(options: argparse.Namespace) -> Config:
    if options.resume is not None:
        if options.cf is not None:
            raise UserError("--resume goes on with a run's own configuration; leave --cf out")
        store = RunStore.open(options.resume)
        store.search_where_it_began()
        return changed(store.read_config(), options.set)
    if options.cf is None:
        raise UserError("mrtf run needs --cf FILE.yaml; `mrtf example quickstart` writes one to start from")
    return changed(read_config(options.cf), options.set)
