"""`device_args`: what computes."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from .kinds import VALIDATED, Count, Steps


@dataclass(frozen=True, config=VALIDATED)
class DeviceSettings:
    """`device_args`: what computes."""

    #: Compute on a GPU; a process that sees none is refused. Equal bytes are promised on the CPU only.
    using_gpu: bool = False
    #: Which GPU a single process takes, counted from 0. Under mpirun `gpu_mapping_file` says it, or
    #: the ranks of a host take turns.
    gpu_id: Steps = 0
    #: PyTorch threads per process. By default one process takes all cores, and ranks divide those of their host. Give
    #: it where bytes are compared: other numbers of threads agree within rounding only.
    threads: Count | None = None
