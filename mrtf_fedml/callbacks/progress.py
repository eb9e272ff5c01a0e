"""What a person sees of a run: a progress bar or one line per round, and a summary at the end."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from ..algorithms.types import Metric
from ..training.evaluation import ACCURACY_PREFIX, STANDARD_KEYS, format_estimate
from ..training.run_directory import RunDirectory
from .base import Callback

if TYPE_CHECKING:
    from ..training.loop import Run

_COLUMNS = 80
#: How many numbers are shown next to the bar, which needs room too.
_BAR_NUMBERS = 2
#: A metric is shown with its standard error if there is a metric of its name with this suffix.
_STDERR = "_stderr"
_RESULT_FILES = (("predictions", "predictions.csv"), ("model", "model.safetensors"), ("report", "report.html"))


class Progress(Callback):
    """Prints one line per round, and on a terminal a progress bar below the lines."""

    def __init__(self, wants_bar: bool | None = None) -> None:
        """True: lines and a bar. False: nothing. None: lines, with a bar on a terminal."""
        self.quiet = wants_bar is False
        self.wants_bar = wants_bar
        self._bar: tqdm | None = None

    def on_start(self, run: Run) -> None:
        """Open the bar at the round from which the run starts or resumes."""
        if self.wants_bar or (self.wants_bar is None and sys.stderr.isatty()):
            self._bar = tqdm(
                total=run.rounds,
                initial=run.state.round,
                unit="round",
                desc="rounds",
                dynamic_ncols=sys.stderr.isatty(),
                ncols=None if sys.stderr.isatty() else _COLUMNS,
                file=sys.stderr,
            )

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        """Print the round's numbers."""
        if self.quiet:
            return
        text = format_round(line, run.rounds, run.algorithm.metrics)
        if self._bar is None:
            print(text, file=sys.stderr, flush=True)
            return
        if sys.stderr.isatty():
            # A notebook shows the bar alone; a terminal keeps the lines above it.
            self._bar.write(text, file=sys.stderr)
        numbers = {
            **format_common_metrics(line, run.algorithm.metrics),
            **format_undeclared_metrics(line, run.algorithm.metrics),
        }
        self._bar.set_postfix(dict(list(numbers.items())[:_BAR_NUMBERS]), refresh=False)
        self._bar.update()

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Close the bar, and print why the run has stopped before its last round."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if run.stop_reason is not None and not self.quiet:
            print(f"stopped after {run.state.round} of {run.rounds} rounds: {run.stop_reason}", file=sys.stderr)


def format_round(line: Mapping[str, Any], rounds: int, metrics: Sequence[Metric] = ()) -> str:
    """The round's numbers in lines of at most 80 columns.

    Accuracies, declared metrics and the loss are shown as far as the first line has room. Metrics that are not
    declared, an algorithm's or a callback's, are always shown, on further lines if needed.

    >>> print(format_round({"round": 1, "acc_refined": 0.981, "train_loss": 0.5, "drift": 0.25}, 20))
    round  2/20  refined 0.981  loss 0.500  drift 0.250
    """
    head = f"round {line['round'] + 1:>{len(str(rounds))}}/{rounds}"
    lines = [head]
    for label, value in format_common_metrics(line, metrics).items():
        longer = f"{lines[0]}  {label} {value}"
        lines[0] = longer if len(longer) <= _COLUMNS else lines[0]
    for label, value in format_undeclared_metrics(line, metrics).items():
        longer = f"{lines[-1]}  {label} {value}"
        if len(longer) <= _COLUMNS:
            lines[-1] = longer
        else:
            lines.append(f"{' ' * len(head)}  {label} {value}")
    return "\n".join(lines)


def format_common_metrics(line: Mapping[str, Any], metrics: Sequence[Metric] = ()) -> dict[str, str]:
    """Accuracies, the metrics that an algorithm declares for the progress line, and the loss, by their labels.

    The model's own accuracy comes first, since a narrow terminal cuts the line at its end.

    >>> declared = [Metric("estimated_accuracy", "estimated", in_progress=True)]
    >>> format_common_metrics({"round": 0, "estimated_accuracy": 0.781, "estimated_accuracy_stderr": 0.0189}, declared)
    {'estimated': '0.78 ± 0.02'}
    """
    accuracies = {key.removeprefix(ACCURACY_PREFIX): key for key in line if key.startswith(ACCURACY_PREFIX)}
    first, *others = accuracies or {"": ""}
    shown = {first: line.get(accuracies.get(first, ""))}
    if line.get("acc") not in (None, shown[first]):
        shown = {"accuracy": line["acc"], **shown}
    shown |= {metric.label: line.get(metric.name) for metric in metrics if metric.in_progress}
    shown |= {label: line[accuracies[label]] for label in others}
    numbers = _format_numbers({**shown, "loss": line.get("train_loss")})
    for metric in metrics:
        stderr = line.get(metric.name + _STDERR)
        if metric.label in numbers and stderr is not None:
            numbers[metric.label] = f"{line[metric.name]:.2f} ± {stderr:.2f}"
    return numbers


def format_undeclared_metrics(line: Mapping[str, Any], metrics: Sequence[Metric] = ()) -> dict[str, str]:
    """The metrics of an algorithm or a callback that are not declared.

    >>> format_undeclared_metrics({"round": 0, "train_loss": 0.5, "drift": 0.25, "visits": 3})
    {'drift': '0.250', 'visits': '3'}
    """
    hidden = {*STANDARD_KEYS, *(metric.name for metric in metrics)}
    own = {key: line[key] for key in line if key not in hidden and not key.startswith(ACCURACY_PREFIX)}
    return _format_numbers(own)


def format_run_summary(directory: RunDirectory) -> str:
    """Algorithm, score and paths of the results of a run, as a terminal shows them."""
    summary: dict[str, Any] = json.loads((directory.path / "summary.json").read_text())
    rows = [
        ("algorithm", summary["algorithm"] + _format_variant(summary)),
        ("rounds", f"{summary['rounds']} of {summary['rounds_requested']} in {summary['seconds']:.1f} s"),
        ("samples labelled", f"{summary['samples_labelled']} in {summary['classes']} classes"),
    ]
    if summary["accuracy"] is not None:
        rows += [("accuracy", f"{summary['accuracy']:.4f}"), ("macro F1", f"{summary['macro_f1']:.4f}")]
        last = (directory.read_metrics() or [{}])[-1]
        if last.get("acc_refined") is not None and last.get("acc_aggregated") is not None:
            rows.append(("before refining", f"{last['acc_aggregated']:.4f} (aggregated model of the last round)"))
    else:
        rows.append(("accuracy", "unknown: the server's set has no labels"))
    estimate = format_estimate(summary)
    if estimate is not None:
        rows.append(("estimated", estimate))
    if summary.get("accepted_accuracy") is not None:
        given = f"{summary['samples_accepted']} labels at an estimated accuracy of {summary['accepted_accuracy']:.2f}"
        others = "; the others abstain" if summary["samples_accepted"] < summary["samples_labelled"] else ""
        rows.append(("decided", f"{given}{others} (predictions.csv)"))
    rows += [("note", sentence) for sentence in summary.get("notes") or []]
    if "epsilon_server" in summary:
        rows.append(("privacy", _format_privacy(summary)))
    files = [(label, directory.path / name) for label, name in _RESULT_FILES]
    rows += [(label, str(file)) for label, file in files if file.exists()]
    width = max(len(label) for label, _ in rows)
    return "\n".join(["", *(f"  {label:<{width}}  {value}" for label, value in rows)])


def _format_numbers(numbers: Mapping[str, Any]) -> dict[str, str]:
    return {
        label: f"{value:.3f}" if isinstance(value, float) else str(value)
        for label, value in numbers.items()
        if isinstance(value, int | float)
    }


def _format_variant(summary: Mapping[str, Any]) -> str:
    """The algorithm's preset, and its base algorithm if that is not FedAvg."""
    parts = [summary["preset"], f"on {summary['base']}" if summary["base"] not in (None, "FedAvg") else None]
    variant = ", ".join(part for part in parts if part)
    return f" ({variant})" if variant else ""


def _format_privacy(summary: Mapping[str, Any]) -> str:
    server, release = summary["epsilon_server"], summary["epsilon_release"]
    if isinstance(server, str):
        return "no epsilon: a guarantee needs clip and sigma (dp_args) in every round"
    delta = summary["privacy_delta"]
    return f"epsilon {server:.3g} towards the server, {release:.3g} of what is released (delta {delta:g})"
