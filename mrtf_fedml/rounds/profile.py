"""`mrtf run --profile`: where each round's CPU seconds go, and a trace of one round."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ..phases import DISTILLING, LOCAL, TARGETS, TEACHERS, measured_phases
from .callbacks import Callback

if TYPE_CHECKING:
    from .loop import Run

#: The numbers of a round's line, and the phase that each adds up; `cpu_rest` is what is in none of them.
COLUMNS = {"cpu_local": LOCAL, "cpu_teachers": TEACHERS, "cpu_targets": TARGETS, "cpu_distilling": DISTILLING}
TRACE = "trace.json"


class Profile(Callback):
    """Adds the phases' CPU seconds to each round's line; traces the second round, or the only one, into trace.json.

    The server's process is what is measured: under mpirun the clients train elsewhere, and `cpu_local` is 0.
    """

    def __init__(self) -> None:
        self._open = ExitStack()
        self._seconds: dict[str, float] = {}
        self._known: dict[str, float] = {}
        self._began = 0.0
        self._profiler: Any = None
        self._first = 0

    def on_start(self, run: Run) -> None:
        """From here on phases are added up."""
        self._seconds = self._open.enter_context(measured_phases())
        self._began, self._first = time.process_time(), run.state.round

    def on_asking(self, run: Run, clients: Sequence[int]) -> None:
        """The first round of a process warms up, and is traced only where it is the last as well."""
        traced = self._first if run.rounds - self._first == 1 else self._first + 1
        if self._profiler is None and run.state.round == traced:
            from torch.profiler import ProfilerActivity, profile

            self._profiler = profile(activities=[ProfilerActivity.CPU])
            self._profiler.start()

    def on_round(self, run: Run, line: dict[str, Any]) -> None:
        """The round's seconds by phase; the trace, after its round."""
        if self._profiler is not None and not (run.store.path / TRACE).exists():
            self._profiler.stop()
            self._profiler.export_chrome_trace(str(run.store.path / TRACE))
        now, spent = time.process_time(), dict(self._seconds)
        of_round = {phase: seconds - self._known.get(phase, 0.0) for phase, seconds in spent.items()}
        line |= {column: of_round.get(phase, 0.0) for column, phase in COLUMNS.items()}
        line["cpu_rest"] = max(0.0, now - self._began - sum(of_round.values()))
        self._known, self._began = spent, now

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Nobody asks any more."""
        self._open.close()
