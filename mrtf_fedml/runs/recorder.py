"""What is told of a run: the server's answer is scored, the round is written down, watchers are shown it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..algorithms import FedAvg
from ..algorithms.contract import RoundReport, ServerBench, ServerState
from ..data import Examiner
from ..privacy.budget import PrivacyBudget
from .store import RunStore
from ..settings import RunSettings

#: Sees each line of metrics.jsonl as it is written.
Watcher = Callable[[dict[str, Any]], None]


class Recorder:
    """Writes a run's folder. It reads the algorithm's state and never changes it: labels end here."""

    def __init__(
        self,
        store: RunStore,
        settings: RunSettings,
        algorithm: FedAvg,
        examiner: Examiner | None,
        ids: list[str],
        class_names: list[str],
        watchers: list[Watcher] | None = None,
    ) -> None:
        self.store = store
        self.settings = settings
        self.algorithm = algorithm
        self.examiner = examiner
        self.ids = ids
        self.class_names = class_names
        self.watchers = watchers or []
        self.started = time.time()
        self.budget = PrivacyBudget(settings)

    def round_done(
        self, state: ServerState, report: RoundReport, bench: ServerBench, facts: dict[str, Any]
    ) -> dict[str, Any]:
        """Score and write down the round that led to `state`; returns its line of metrics.jsonl.

        Args:
            state: after the round.
            report: what the server's rule tells.
            bench: predicts, where a score is due.
            facts: clients, left_out, seconds and bytes.
        """
        line: dict[str, Any] = {
            "round": state.round - 1,
            "clients": facts["clients"],
            "left_out": facts["left_out"],
            "local_loss": report.local_loss,
            "local_weight": report.local_weight,
            **self._scores(state, report, bench),
            "seconds_local": facts["seconds_local"],
            "seconds_refine": facts["seconds_refine"],
            "bytes_up": facts["bytes_up"],
            "bytes_down": facts["bytes_down"],
            **self._spent(facts["clients"]),
        }
        self.store.append_metrics(line)
        self.store.save_state(state)
        for watcher in self.watchers:
            watcher(line)
        return line

    def finish(self, state: ServerState, bench: ServerBench, interrupted: bool = False) -> dict[str, Any]:
        """Write the server's answer and the summary; also for a run that was interrupted between rounds."""
        logits = bench.logits(state.answer)
        self.store.write_predictions(logits, self.ids, self.class_names)
        self.store.write_model(state.answer)
        summary = self._summary(state, logits, interrupted)
        self.store.write_json("summary.json", summary)
        return summary

    def _spent(self, *clients: list[int]) -> dict[str, Any]:
        """The privacy budget after the rounds that are written down, and those given."""
        if not self.settings.privacy.active:
            return self.budget.spent([])
        return self.budget.spent([*(line["clients"] for line in self.store.read_metrics()), *clients])

    def _scores(self, state: ServerState, report: RoundReport, bench: ServerBench) -> dict[str, float | None]:
        names = ("acc", "acc_aggregated", "acc_ensemble", "acc_targets", "acc_refined")
        scores: dict[str, float | None] = dict.fromkeys(names)
        if self.examiner is None or not self._is_due(state.round - 1):
            return scores
        scores["acc"] = self.examiner.score(bench.logits(state.answer))
        scores["acc_refined" if self.algorithm.transductive else "acc_aggregated"] = scores["acc"]
        measured: dict[str, Tensor | None] = {
            "acc_aggregated": report.aggregated,
            "acc_ensemble": report.ensemble,
            "acc_targets": report.targets,
        }
        for name, predictions in measured.items():
            if predictions is not None:
                scores[name] = self.examiner.score(predictions)
        return scores

    def _is_due(self, round_index: int) -> bool:
        train = self.settings.train
        return round_index % train.frequency_of_the_test == 0 or round_index == train.comm_round - 1

    def _summary(self, state: ServerState, logits: Tensor, interrupted: bool) -> dict[str, Any]:
        metrics = self.store.read_metrics()
        scored = [line["acc"] for line in metrics if line["acc"] is not None]
        summary: dict[str, Any] = {
            "dataset": self.settings.data.dataset,
            "algorithm": self.algorithm.name,
            "preset": self.settings.mrtf.preset if self.algorithm.name == "MrTF" else None,
            "rounds": state.round,
            "rounds_asked_for": self.settings.train.comm_round,
            "interrupted": interrupted,
            "samples_labelled": len(self.ids),
            "classes": len(self.class_names),
            "seconds": sum(line["seconds_local"] + line["seconds_refine"] for line in metrics),
            "mean_accuracy_over_rounds": statistics.fmean(scored) if scored else None,
            "accuracy": None,
            "macro_f1": None,
            "recall": None,
            **self.budget.summary(self._spent()),
        }
        if self.examiner is not None:
            report = self.examiner.report(logits)
            summary |= {key: report[key] for key in ("accuracy", "macro_f1", "recall")}
        return summary
