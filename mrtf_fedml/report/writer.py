"""The callback that tells a run to a person when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..data import TensorShard, TransductiveDataset
from ..data.examiner import Examiner
from ..data.statistics import statistics_of
from ..rounds.callbacks import Callback
from . import write_report
from .material import keep_agreement, keep_features

if TYPE_CHECKING:
    from ..rounds.loop import Run

#: A picture of more clients tells nobody anything, and counting their samples takes its time.
_MOST_CLIENTS = 500


class ReportWriter(Callback):
    """Writes report.html, from what the run's folder holds by then; and who holds what, where one process knows."""

    def __init__(self, dataset: TransductiveDataset, examiner: Examiner | None) -> None:
        self._dataset = dataset
        self._examiner = examiner

    def on_start(self, run: Run) -> None:
        """split.json: only a simulation knows its clients' samples."""
        shards = self._dataset[5]
        known = run.settings.common.training_type == "simulation" and 0 < len(shards) <= _MOST_CLIENTS
        if known and all(isinstance(shard, TensorShard) for shard in shards.values()):
            split = statistics_of(self._dataset)
            run.store.write_json("split.json", {"counts": split.counts.tolist(), "class_names": split.class_names})

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """What only the run can tell the report, and the report."""
        keep_agreement(run)
        if run.settings.common.keep_features:
            keep_features(run)
        write_report(run.store, self._dataset.server_inputs, self._examiner)
