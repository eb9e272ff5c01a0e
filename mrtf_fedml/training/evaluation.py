"""The metrics of a round and the summary of a run. No other module of a run asks the sealed evaluator for scores."""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..algorithms import Metric, RoundReport
from ..data import SealedEvaluator
from ..errors import UserError
from ..models.memory_layout import preferred_layout
from .round import RoundRecord

if TYPE_CHECKING:
    from .loop import Run

_log = logging.getLogger(__name__)

#: Keys of a line of metrics.jsonl and their meaning. An algorithm or a callback must not use them for its own metrics.
STANDARD_KEYS = {
    "round": "index of the round, from 0",
    "clients": "clients whose updates were used",
    "excluded_clients": "clients that were excluded, with the reason",
    "train_loss": "mean training loss of the clients (cross-entropy)",
    "acc": "accuracy of the model that predicts, where labels exist; acc_NAME is that of other predictions",
    "client_seconds": "seconds of local training",
    "server_seconds": "seconds of the server's work",
    "uplink_bytes": "bytes from clients to server",
    "downlink_bytes": "bytes from server to clients",
    "retries": "how often other clients were tried",
    "outlier_clients": "clients whose update, payload or loss is much larger than the others' and is bounded",
    "suspect_clients": "clients whose update, payload or model does not fit the others', with the reason",
    "epsilon_server": "privacy budget spent, as the server sees the updates",
    "epsilon_release": "privacy budget spent, as a reader of the model sees it",
}
#: The accuracy of predictions that an algorithm reports by name has this prefix.
ACCURACY_PREFIX = "acc_"


#: The coverage of the interval of an estimated accuracy.
CONFIDENCE = 0.95


class Evaluation:
    """Scores a run where labels exist. It reads the server's state and never changes it."""

    def __init__(self, evaluator: SealedEvaluator | None, samples: int, class_names: list[str]) -> None:
        self._evaluator = evaluator
        self._samples = samples
        self._class_names = class_names

    def round_metrics(self, run: Run, record: RoundRecord) -> dict[str, Any]:
        """The round's line of metrics.jsonl."""
        replies = record.replies
        return {
            "round": record.round,
            "clients": replies.clients,
            "excluded_clients": _string_keys(replies.excluded_clients),
            "train_loss": record.train_loss,
            **self._accuracies(run, record.report),
            **check_metrics(record.report.metrics),
            "client_seconds": replies.client_seconds,
            "server_seconds": record.server_seconds,
            "uplink_bytes": replies.uplink_bytes,
            "downlink_bytes": replies.downlink_bytes,
            **({"retries": replies.retries} if replies.retries else {}),
            **({"outlier_clients": _string_keys(replies.outlier_clients)} if replies.outlier_clients else {}),
        }

    def summary(self, run: Run, interrupted: bool) -> dict[str, Any]:
        """summary.json, to which callbacks add."""
        metrics = run.directory.read_metrics()
        accuracies = [line["acc"] for line in metrics if line.get("acc") is not None]
        summary: dict[str, Any] = {
            "dataset": run.settings.data.title,
            "algorithm": run.algorithm.name,
            "preset": getattr(run.algorithm.hparams, "preset", None),
            "base": getattr(run.algorithm.hparams, "base", None),
            "rounds": run.state.round,
            "rounds_requested": run.rounds,
            "interrupted": interrupted,
            "stop_reason": run.stop_reason,
            "device": _device_name(run.context.inputs.device),
            "layout": preferred_layout(run.context.model),
            "precision": run.settings.device.precision,
            "samples_labelled": self._samples,
            "classes": len(self._class_names),
            "seconds": sum((line.get("client_seconds") or 0) + (line.get("server_seconds") or 0) for line in metrics),
            "mean_accuracy_over_rounds": statistics.fmean(accuracies) if accuracies else None,
            "accuracy": None,
            "macro_f1": None,
            "recall": None,
            "metric_labels": {metric.name: metric_label(metric) for metric in run.algorithm.metrics},
        }
        if self._evaluator is not None:
            report = self._evaluator.report(run.final_logits())
            summary |= {key: report[key] for key in ("accuracy", "macro_f1", "recall")}
        return summary

    def _accuracies(self, run: Run, report: RoundReport) -> dict[str, float | None]:
        """The accuracy of the predictions (`acc`), and of all that the algorithm reports by name (`acc_<name>`).

        `acc` is also recorded as `acc_refined` if the algorithm refines on the server's samples, else as
        `acc_aggregated`, unless the algorithm reports predictions of that name itself.
        """
        own_name = ACCURACY_PREFIX + ("refined" if run.algorithm.transductive else "aggregated")
        accuracies: dict[str, float | None] = dict.fromkeys(("acc", own_name))
        accuracies |= dict.fromkeys(ACCURACY_PREFIX + name for name in report.predictions)
        if self._evaluator is None or not _is_due(run, run.state.round - 1):
            return accuracies
        accuracies["acc"] = accuracies[own_name] = self._evaluator.score(run.prediction_logits())
        for name, predictions in report.predictions.items():
            try:
                accuracies[ACCURACY_PREFIX + name] = self._evaluator.score(predictions)
            except ValueError as error:
                raise UserError(f"the algorithm's predictions {name!r} cannot be scored: {error}") from error
        return accuracies


def format_estimate(summary: Mapping[str, Any]) -> str | None:
    """The estimate in summary.json with its interval, or why there is none; None if nothing is known.

    >>> format_estimate({"estimated_accuracy": 0.816, "estimated_accuracy_interval": [0.76, 0.861]})
    '0.82 (95% interval 0.76 to 0.86)'
    >>> stated = {"estimated_accuracy": 0.816, "estimated_accuracy_interval": [0.76, 0.861]}
    >>> format_estimate({**stated, "estimate_condition": "valid only if ..."})
    '0.82 (95% interval 0.76 to 0.86; valid only if ...)'
    >>> format_estimate({"estimated_accuracy": None, "no_estimate_because": "no client holds samples out"})
    'no estimate: no client holds samples out'
    """
    if summary.get("estimated_accuracy") is None:
        reason = summary.get("no_estimate_because")
        return None if reason is None else f"no estimate: {reason}"
    low, high = summary["estimated_accuracy_interval"]
    condition = f"; {summary['estimate_condition']}" if summary.get("estimate_condition") else ""
    return f"{summary['estimated_accuracy']:.2f} ({CONFIDENCE:.0%} interval {low:.2f} to {high:.2f}{condition})"


def metric_label(metric: Metric) -> str:
    """The label of a metric with its unit."""
    return f"{metric.label} [{metric.unit}]" if metric.unit else metric.label


def check_metrics(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """An algorithm's metrics as they are written: Python numbers, and None where one is not finite."""
    checked: dict[str, float | None] = {}
    for name, value in metrics.items():
        if name in STANDARD_KEYS:
            raise UserError(f"the algorithm reports the metric {name!r}, which every run has; choose another name")
        number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
        if number is not None and not isinstance(number, Real):
            raise UserError(f"the algorithm's metric {name!r} is a {type(value).__name__}; it must be one number")
        if number is not None and not math.isfinite(number):
            _log.warning("the metric %s is %s and is written as null", name, number)
            number = None
        checked[name] = number if number is None or isinstance(number, int) else float(number)
    return checked


def _is_due(run: Run, round_index: int) -> bool:
    train = run.settings.train
    return round_index % train.frequency_of_the_test == 0 or round_index == train.comm_round - 1


def _string_keys(by_client: Mapping[int, str]) -> dict[str, str]:
    return {str(client): reason for client, reason in by_client.items()}


def _device_name(device: torch.device) -> str:
    """The device, and the GPU's model."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
