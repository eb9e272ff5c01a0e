"""How many runs of a comparison are at work at once, where nobody says it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..settings import RunSettings
from .plan import Trial

#: What a run may take beside its data: FedML's and PyTorch's imports are 1 GB of it.
_BYTES_PER_RUN = 2 << 30


def chosen_jobs(trials: Sequence[Trial]) -> int:
    """As many as the cores bear with the threads that a run asks for, else with one thread each; at least one.

    Runs do not wait for each other, and the threads of one run do (docs/speed.md has what that costs). The machine and
    the plan decide, never what is free at the moment: jobs share the cores, and so the number of threads, on which last
    bits depend, follows from it. A GPU is not shared unless it is asked for.
    """
    devices = [RunSettings.from_config(trial.config).device for trial in trials]
    if any(device.using_gpu for device in devices):
        return 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(wanted) if wanted.isdigit() else max((device.threads or 1 for device in devices), default=1)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    runs = len({trial.key for trial in trials})
    return max(1, min(runs, len(os.sched_getaffinity(0)) // max(1, threads), memory // _BYTES_PER_RUN))
