"""The callback that tells a run to a person when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..data.examiner import Examiner
from ..rounds.callbacks import Callback
from . import write_report

if TYPE_CHECKING:
    from ..rounds.loop import Run


class ReportWriter(Callback):
    """Writes report.html, from what the run's folder holds by then."""

    def __init__(self, inputs: Tensor | None, examiner: Examiner | None) -> None:
        self._inputs = inputs
        self._examiner = examiner

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """The report."""
        write_report(run.store, self._inputs, self._examiner)
