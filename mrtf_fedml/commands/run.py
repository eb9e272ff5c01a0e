"""`mrtf run`: one run, from a configuration to predictions and a report."""

from __future__ import annotations

import argparse
import os

from ..callbacks.progress import format_run_summary
from ..config import RunSettings
from ..config.loader import read_config, warn_about_similar_keys
from ..config.schema import Config
from ..errors import UserError
from ..fedml_bridge.runner import RunOptions, run_configuration
from ..process.logs import buffer_log
from ..process.mpi import abort_all_ranks_on_error, agree_on_errors, world_rank
from ..training.run_directory import RunDirectory
from .configuration import apply_changes


def main(options: argparse.Namespace) -> int:
    """Run the configuration and print the summary; under mpirun, as one of the ranks."""
    with abort_all_ranks_on_error():
        with agree_on_errors():
            config = _configuration(options)
            settings = RunSettings.from_config(config)
            rank = party_rank(options, settings)
            if rank is None and world_rank() > 0:
                buffer_log()
            warn_about_similar_keys(config)
        run_options = RunOptions(options.resume, rank, options.verbose, profile=options.profile, watch=options.watch)
        if rank is None:
            run_dir = run_configuration(settings, run_options).run_dir
            if world_rank() == 0 and run_dir is not None:
                print(format_run_summary(RunDirectory.open(run_dir)))
            return 0
    # Outside of abort_all_ranks_on_error: a failing silo must not end the others.
    run_dir = run_configuration(settings, run_options).run_dir
    print(f"silo {rank}: the run is over" if run_dir is None else format_run_summary(RunDirectory.open(run_dir)))
    return 0


def party_rank(options: argparse.Namespace, settings: RunSettings) -> int | None:
    """The rank of this process across silos or devices, from FedML's flags or mpirun; None in a simulation."""
    rank: int | None = options.rank
    if settings.common.training_type == "cross_device":
        if options.role == "client" or rank:
            raise UserError(
                "devices are phones, or emulated by `python -m "
                "mrtf_fedml.fedml_bridge.backends.cross_device.emulator`; `mrtf run` is their server"
            )
        return 0
    if settings.common.training_type != "cross_silo":
        if rank is not None or options.role is not None:
            raise UserError("--rank and --role belong to training_type: cross_silo; leave them out")
        return None
    if settings.common.backend == "MPI":
        # Set by mpirun, in a variable of Open MPI or of MPICH.
        rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")))
    if rank is None and options.role == "server":
        rank = 0
    if rank is None:
        raise UserError("a run across silos needs --role server, or --role client --rank R with R = 1, 2, ...")
    if options.role is not None and (rank == 0) != (options.role == "server"):
        raise UserError(f"--role {options.role} contradicts --rank {rank}; the server has rank 0, the silos 1, 2, ...")
    if not 0 <= rank <= settings.train.client_num_in_total:
        raise UserError(f"--rank {rank}: the ranks go from 0 (the server) to client_num_in_total (the last silo)")
    return rank


def _configuration(options: argparse.Namespace) -> Config:
    given = {"coverage": options.coverage, "accept": options.accept}
    changes = [*options.set, *(f"{key}={value}" for key, value in given.items() if value is not None)]
    if options.resume is not None:
        if options.cf is not None:
            raise UserError("--resume uses the configuration of the run; leave --cf out")
        directory = RunDirectory.open(options.resume)
        directory.extend_import_path()
        return apply_changes(directory.read_config(), changes)
    if options.cf is None:
        raise UserError("mrtf run needs --cf FILE.yaml; `mrtf example quickstart` writes one")
    return apply_changes(read_config(options.cf), changes)
