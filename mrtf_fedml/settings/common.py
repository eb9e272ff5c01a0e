"""`common_args`: what kind of run it is, and where it writes."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from pydantic.dataclasses import dataclass

from .kinds import VALIDATED, Count, Seed


@dataclass(frozen=True, config=VALIDATED)
class CommonSettings:
    """`common_args` and `comm_args`: what kind of run, and where it writes."""

    #: `simulation`: the clients are played by one process, or by the ranks of mpirun. `cross_silo`: every party is a
    #: process of its own. `cross_device`: the clients are devices.
    training_type: Literal["simulation", "cross_silo", "cross_device"] = "simulation"
    #: What moves the messages. A simulation takes `sp` (one process), `MPI`, or `NCCL`, which is
    #: MPI's ranks with a GPU each and `refine_on: ranks`; a run across silos takes `GRPC`, `MQTT_S3`, `TRPC` or `MPI`.
    backend: str = "sp"
    #: What every draw of the run derives from: split, initial weights, chosen clients, batches, refining. A whole
    #: number below 2^32; the same number and the same `threads` give the same bytes.
    random_seed: Seed = 0
    #: The folder that the run writes; `runs/<dataset>-<algorithm>-<time>` where it is not given.
    run_dir: str | None = None
    #: Keep h(x) of up to 1500 of the server's samples in the run's folder, by 50 numbers each at most, for the report's
    #: picture of them. Drawing it takes seconds; `false` saves them where many short runs are made.
    keep_features: bool = True
    #: How many states a run keeps, the last round's and those before it: where the newest is damaged, a resume goes on
    #: from the one before. Each is as large as what the server carries from round to round.
    keep_states: Count = 2
    #: Classes derived from mrtf_fedml.Callback, as `package.module:Class`. They come beside those that every run has.
    callbacks: list[str] = field(default_factory=list)
