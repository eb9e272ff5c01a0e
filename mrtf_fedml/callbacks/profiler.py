"""`mrtf run --profile`: CPU seconds of each round by phase, and a trace of one round."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ..phases import DISTILLING, LOCAL, TARGETS, TEACHERS, measured_phases
from .base import Callback

if TYPE_CHECKING:
    from ..training.loop import Run

#: Metrics of a round, and the phase that each measures. `cpu_rest` is the time outside all of them.
COLUMNS = {"cpu_local": LOCAL, "cpu_teachers": TEACHERS, "cpu_targets": TARGETS, "cpu_distilling": DISTILLING}
TRACE = "trace.json"


class Profiler(Callback):
    """Adds the phases' CPU seconds to each round's metrics, and writes trace.json of the second (or only) round.

    It measures the server's process: under mpirun the clients train in others, and `cpu_local` is 0.
    """

    def __init__(self) -> None:
        self._measuring = ExitStack()
        self._seconds: dict[str, float] = {}
        self._seconds_before: dict[str, float] = {}
        self._round_start = 0.0
        self._profiler: Any = None
        self._first_round = 0

    def on_start(self, run: Run) -> None:
        """Start to measure phases."""
        self._seconds = self._measuring.enter_context(measured_phases())
        self._round_start, self._first_round = time.process_time(), run.state.round

    def on_round_begin(self, run: Run, clients: Sequence[int]) -> None:
        """Start the trace. The first round of a process warms up, and is traced only if it is the only one."""
        traced = self._first_round if run.rounds - self._first_round == 1 else self._first_round + 1
        if self._profiler is None and run.state.round == traced:
            from torch.profiler import ProfilerActivity, profile

            self._profiler = profile(activities=[ProfilerActivity.CPU])
            self._profiler.start()

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        """Add the round's seconds by phase; write the trace after its round."""
        if self._profiler is not None and not (run.directory.path / TRACE).exists():
            self._profiler.stop()
            self._profiler.export_chrome_trace(str(run.directory.path / TRACE))
        now, total = time.process_time(), dict(self._seconds)
        of_round = {phase: seconds - self._seconds_before.get(phase, 0.0) for phase, seconds in total.items()}
        line |= {column: of_round.get(phase, 0.0) for column, phase in COLUMNS.items()}
        line["cpu_rest"] = max(0.0, now - self._round_start - sum(of_round.values()))
        self._seconds_before, self._round_start = total, now

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Stop measuring."""
        self._measuring.close()
