"""`device_args`: what computes."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from .kinds import VALIDATED, Count, Steps


@dataclass(frozen=True, config=VALIDATED)
class DeviceSettings:
    """`device_args`: what computes."""

    using_gpu: bool = False
    gpu_id: Steps = 0
    #: PyTorch threads a process; None leaves all cores to one process.
    threads: Count | None = None
