"""A round and a run in numbers. The only place where an examiner is asked: labels end here."""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..algorithms import RoundReport
from ..data import Examiner
from ..errors import UserError
from ..models.compiled import is_compiled
from ..models.layout import layout_of
from .round import RoundRecord

if TYPE_CHECKING:
    from .loop import Run

_log = logging.getLogger(__name__)

#: The accuracies that every line has, null where they were not measured.
ACCURACIES = ("acc", "acc_aggregated", "acc_ensemble", "acc_targets", "acc_refined")
_BEFORE = ("round", "clients", "left_out", "local_loss", "local_weight")
_AFTER = ("seconds_local", "seconds_refine", "bytes_up", "bytes_down")
#: What every line has; whatever else stands in one, the algorithm or a callback has measured.
STANDARD = (*_BEFORE, *ACCURACIES, *_AFTER, "retries", "far_off", "epsilon_server", "epsilon_release")
#: Of these an algorithm may give the number itself.
_OPEN = ("local_weight",)


class Scores:
    """Scores a run where labels exist. It reads the algorithm's state and never changes it."""

    def __init__(self, examiner: Examiner | None, samples: int, class_names: list[str]) -> None:
        self._examiner = examiner
        self._samples = samples
        self._class_names = class_names

    def line(self, run: Run, record: RoundRecord) -> dict[str, Any]:
        """The round's line of metrics.jsonl."""
        own = checked_metrics(record.report.metrics)
        arrived = record.arrived
        return {
            "round": record.round,
            "clients": arrived.clients,
            "left_out": {str(client): reason for client, reason in arrived.left_out.items()},
            "local_loss": record.local_loss,
            "local_weight": own.pop("local_weight", None),
            **self._accuracies(run, record.report),
            **own,
            "seconds_local": arrived.seconds_local,
            "seconds_refine": record.seconds_refine,
            "bytes_up": arrived.bytes_up,
            "bytes_down": arrived.bytes_down,
            # Where all is well there is nothing to tell.
            **({"retries": arrived.retries} if arrived.retries else {}),
            **({"far_off": {str(client): why for client, why in arrived.far_off.items()}} if arrived.far_off else {}),
        }

    def summary(self, run: Run, interrupted: bool) -> dict[str, Any]:
        """summary.json."""
        metrics = run.store.read_metrics()
        scored = [line["acc"] for line in metrics if line.get("acc") is not None]
        summary: dict[str, Any] = {
            "dataset": run.settings.data.title,
            "algorithm": run.algorithm.name,
            "preset": getattr(run.algorithm.own, "preset", None),
            "base": getattr(run.algorithm.own, "base", None),
            "rounds": run.state.round,
            "rounds_asked_for": run.rounds,
            "interrupted": interrupted,
            "stopped": run.stopped,
            "device": _named(run.bench.inputs.device),
            "layout": layout_of(run.bench.model),
            "precision": run.settings.device.precision,
            "compiled": is_compiled(run.bench.model),
            "samples_labelled": self._samples,
            "classes": len(self._class_names),
            "seconds": sum((line.get("seconds_local") or 0) + (line.get("seconds_refine") or 0) for line in metrics),
            "estimated_accuracy": metrics[-1].get("estimated_accuracy") if metrics else None,
            "estimated_error": metrics[-1].get("estimated_error") if metrics else None,
            # The watch knows.
            "estimated_on": None,
            "mean_accuracy_over_rounds": statistics.fmean(scored) if scored else None,
            "accuracy": None,
            "macro_f1": None,
            "recall": None,
        }
        if self._examiner is not None:
            report = self._examiner.report(run.answer_logits())
            summary |= {key: report[key] for key in ("accuracy", "macro_f1", "recall")}
        return summary

    def _accuracies(self, run: Run, report: RoundReport) -> dict[str, float | None]:
        accuracies: dict[str, float | None] = dict.fromkeys(ACCURACIES)
        accuracies |= dict.fromkeys(f"acc_{name}" for name in report.predictions)
        if self._examiner is None or not self._is_due(run, run.state.round - 1):
            return accuracies
        accuracies["acc"] = self._examiner.score(run.answer_logits())
        accuracies["acc_refined" if run.algorithm.transductive else "acc_aggregated"] = accuracies["acc"]
        for name, predicted in report.predictions.items():
            try:
                accuracies[f"acc_{name}"] = self._examiner.score(predicted)
            except ValueError as error:
                raise UserError(f"the algorithm's predictions {name!r} cannot be scored: {error}") from error
        return accuracies

    def _is_due(self, run: Run, round_index: int) -> bool:
        train = run.settings.train
        return round_index % train.frequency_of_the_test == 0 or round_index == train.comm_round - 1


def _named(device: torch.device) -> str:
    """The server's device, a GPU with its model."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def checked_metrics(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """An algorithm's numbers as they may be written: a name of its own each, and null where one is not finite."""
    checked: dict[str, float | None] = {}
    for name, value in metrics.items():
        if name in STANDARD and name not in _OPEN:
            raise UserError(f"the algorithm measures {name!r}, which every run has already; choose another name")
        number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
        if number is not None and not isinstance(number, Real):
            raise UserError(f"the algorithm's metric {name!r} is a {type(value).__name__}; it must be one number")
        if number is not None and not math.isfinite(number):
            _log.warning("the metric %s is %s, which is written as null", name, number)
            number = None
        checked[name] = number if number is None or isinstance(number, int) else float(number)
    return checked
