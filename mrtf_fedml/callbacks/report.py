"""The callback that writes report.html when a run ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..data import TensorShard, TransductiveDataset
from ..data.evaluator import SealedEvaluator
from ..data.statistics import compute_statistics
from ..report import write_report
from ..report.artifacts import write_agreement, write_features
from .base import Callback

if TYPE_CHECKING:
    from ..training.loop import Run

#: A chart of more clients is not readable, and counting their samples takes long.
_MAX_CLIENTS = 500


class ReportWriter(Callback):
    """Writes report.html from the files of the run directory, and split.json with the clients' samples per class."""

    def __init__(self, dataset: TransductiveDataset, evaluator: SealedEvaluator | None) -> None:
        self._dataset = dataset
        self._evaluator = evaluator

    def on_start(self, run: Run) -> None:
        """Write split.json, in a simulation only: other servers do not know their clients' samples."""
        shards = self._dataset[5]
        is_known = run.settings.common.training_type == "simulation" and 0 < len(shards) <= _MAX_CLIENTS
        if is_known and all(isinstance(shard, TensorShard) for shard in shards.values()):
            split = compute_statistics(self._dataset)
            names = self._dataset.client_names
            content = {"counts": split.counts.tolist(), "class_names": split.class_names}
            run.directory.write_json("split.json", content if names is None else {**content, "client_names": names})

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Write what the report needs from the run itself, and the report."""
        write_agreement(run)
        if run.settings.common.keep_features:
            write_features(run)
        write_report(run.directory, self._dataset.server_inputs, self._evaluator)
