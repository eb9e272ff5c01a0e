"""A run in sentences and a few numbers: headline, summary, warnings, excluded clients, resumes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..data.formatting import name_clients
from ..training.evaluation import format_estimate
from ..training.run_directory import has_used_update
from .run_data import Predictions, RunData

#: The reason of exclusions in runs that recorded no reasons.
_NOT_FINITE = "its numbers are not finite"
#: Up to this many rounds are listed; more are counted.
_MAX_ROUNDS = 10

#: Summary entries that are shown as "not known" if they are missing; others are omitted then.
_ALWAYS_SHOWN = ("accuracy", "macro_f1", "mean_accuracy_over_rounds")
_LABELS = {
    "preset": "preset",
    "rounds": "completed rounds",
    "rounds_requested": "requested rounds",
    "seconds": "computing time",
    "estimated_accuracy": "estimated accuracy",
    "no_estimate_because": "no estimated accuracy, because",
    "estimate_condition": "condition of the estimate",
    "validation_clients": "clients that evaluated the model",
    "validation_samples": "held-out samples that they evaluated",
    "mean_accuracy_over_rounds": "mean accuracy over the rounds",
    "macro_f1": "macro F1",
    "epsilon_server": "privacy budget epsilon, towards the server",
    "epsilon_release": "privacy budget epsilon, of what is released",
    "privacy_delta": "delta of the privacy budget",
    "privacy_note": "note on the privacy budget",
}


def short_title(data: RunData) -> str:
    """What was labelled, for the top of the page."""
    if data.predictions is None:
        return f"{data.dataset}: no predictions yet"
    # The server's own file, where it has one: `dataset` is named after the clients'.
    server_file = data.config.get("data_args", {}).get("server_file")
    name = Path(str(server_file)).stem if server_file else data.dataset
    return f"{pluralize(len(data.predictions.ids), 'sample')} labelled: {name}"


def result_sentences(data: RunData) -> str:
    """How accurate the predictions are, as far as it is known, and how the run has ended."""
    if data.predictions is None:
        return f"{data.algorithm} has completed {pluralize(len(data.metrics), 'round')} and has not ended."
    return f"{_describe_accuracy(data, data.predictions)} {_describe_end(data)}".strip()


def headline(data: RunData) -> str:
    """The result of the run, in a few sentences."""
    if data.predictions is None:
        return (
            f"{data.algorithm} has completed {pluralize(len(data.metrics), 'round')} on {data.dataset} and has not "
            "ended: there are no predictions yet."
        )
    sentence = f"{data.algorithm} labelled {pluralize(len(data.predictions.ids), 'sample')} of {data.dataset}."
    return f"{sentence} {result_sentences(data)}"


def key_numbers(data: RunData) -> list[tuple[str, str]]:
    """The most important numbers, as (value, label)."""
    numbers: list[tuple[str, str]] = []
    if data.evaluation is not None:
        numbers.append((_format_fraction(data.evaluation.accuracy), "accuracy"))
        aggregated = aggregated_accuracy(data)
        if aggregated is not None:
            numbers.append((_format_fraction(aggregated), "accuracy of the aggregated model"))
    elif data.predictions is not None:
        summary = data.summary or {}
        if summary.get("estimated_accuracy") is not None:
            low, high = summary["estimated_accuracy_interval"]
            condition = f"; {summary['estimate_condition']}" if summary.get("estimate_condition") else ""
            label = f"estimated accuracy, 95% interval {low:.2f} to {high:.2f}{condition}"
            numbers.append((_format_fraction(summary["estimated_accuracy"]), label))
            numbers.append((_format_fraction(float(data.predictions.confidences.mean())), "mean confidence"))
        else:
            numbers.append(("unknown", "accuracy"))
    if data.predictions is not None:
        numbers.append((f"{len(data.predictions.ids):,}", "samples labelled"))
        acceptable = (data.summary or {}).get("acceptable")
        if acceptable:
            # The middle level; a tile has room for one number.
            level, count = list(acceptable.items())[len(acceptable) // 2]
            others = ", ".join(f"{float(name):.0%}: {number:,}" for name, number in acceptable.items() if name != level)
            label = f"labels that are right with a probability of {float(level):.0%} or more ({others})"
            numbers.append((f"{count:,}", label))
    numbers.append((str(len(data.metrics)), "rounds"))
    numbers.append((format_duration(data.seconds), "of computing"))
    return numbers


def aggregated_accuracy(data: RunData) -> float | None:
    """The aggregated model's accuracy in the last scored round; None if that model gives the predictions."""
    last = data.last_scored
    return last.get("acc_aggregated") if last is not None and last.get("acc_refined") is not None else None


def summary_rows(data: RunData) -> list[tuple[str, str]]:
    """The summary as (label, value), without entries that have a chart or a table of their own."""
    rows = [
        (_LABELS.get(key, key.replace("_", " ")), _format_summary_value(key, value))
        for key, value in (data.summary or {}).items()
        if key in _ALWAYS_SHOWN or not (value is None or isinstance(value, dict | list))
    ]
    for key, label in (("downlink_bytes", "sent to the clients"), ("uplink_bytes", "sent by the clients")):
        if any(line.get(key) for line in data.metrics):
            rows.append((label, format_bytes(sum(line.get(key) or 0 for line in data.metrics))))
    return rows


def list_warnings(data: RunData) -> list[str]:
    """The warnings of the run itself, the excluded clients and other problems."""
    warnings = (data.summary or {}).get("warnings") or []
    names = None if data.client_counts is None else data.client_counts.names
    return [
        *(str(sentence) for sentence in warnings),
        *describe_exclusions(data.metrics),
        *(name_clients(sentence, names) for sentence in describe_problems(data.metrics)),
    ]


def describe_exclusions(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """One sentence per reason for which clients' updates were excluded."""
    rounds_by_reason: dict[str, list[int]] = {}
    for line in metrics:
        for reason in _exclusion_reasons(line.get("excluded_clients") or []):
            rounds_by_reason.setdefault(reason, []).append(line["round"] + 1)
    return [
        f"{pluralize(len(rounds), 'client update')} {'was' if len(rounds) == 1 else 'were'} excluded "
        f"({_format_rounds(rounds)}): {reason.rstrip('.')}."
        for reason, rounds in rounds_by_reason.items()
    ]


def describe_problems(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rounds that were repeated with other clients, rounds without a usable update, and outlier clients."""
    sentences = []
    retried = [line["round"] + 1 for line in metrics if line.get("retries")]
    if retried:
        sentences.append(f"Too few updates were usable, so other clients were selected ({_format_rounds(retried)}).")
    unchanged = [line["round"] + 1 for line in metrics if line.get("clients") and not has_used_update(line)]
    if unchanged:
        sentences.append(f"No update was usable, so the model did not change ({_format_rounds(unchanged)}).")
    outliers: dict[str, list[int]] = {}
    for line in metrics:
        for client in line.get("outlier_clients") or {}:
            outliers.setdefault(str(client), []).append(line["round"] + 1)
    sentences += [
        f"Client {client} sent updates much larger than the others' ({_format_rounds(rounds)}): it diverges or is "
        "malicious; check it, or exclude it."
        for client, rounds in outliers.items()
    ]
    return sentences


def describe_resumes(data: RunData) -> list[str]:
    """One sentence per resume of the run."""
    return [_describe_resume(number, changes) for number, changes in sorted(data.resumes.items())]


def pluralize(number: int, noun: str) -> str:
    """A number with its noun.

    >>> pluralize(1, "round"), pluralize(1200, "sample")
    ('1 round', '1,200 samples')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def join_words(words: Sequence[str]) -> str:
    """Words as a list in a sentence.

    >>> join_words(["a"]), join_words(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def format_bytes(number: float) -> str:
    """A number of bytes with a unit.

    >>> format_bytes(900), format_bytes(1_500_000)
    ('900 bytes', '1.5 MB')
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} bytes"


def format_duration(seconds: float) -> str:
    """A number of seconds with a unit.

    >>> format_duration(4.26), format_duration(75), format_duration(9000)
    ('4.3 s', '1.2 min', '2.5 h')
    """
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def _describe_accuracy(data: RunData, predictions: Predictions) -> str:
    evaluation = data.evaluation
    if evaluation is None:
        summary = data.summary or {}
        estimate = format_estimate(summary)
        if summary.get("estimated_accuracy") is None:
            # A mean confidence in the place of an accuracy would be read as one.
            return f"Accuracy: unknown{'' if estimate is None else f' ({estimate})'}. The true labels are not known."
        mean = _format_fraction(float(predictions.confidences.mean()))
        return (
            f"Accuracy, estimated on {_describe_basis(summary)}: {estimate}. The true labels are not known. "
            f"Mean confidence: {mean}."
        )
    accuracy = _format_fraction(evaluation.accuracy)
    labelled = evaluation.labelled_samples
    is_partial = labelled is not None and labelled < len(predictions.ids)
    sentence = f"Accuracy{f' on the {labelled} samples with a true label' if is_partial else ''}: {accuracy}"
    aggregated = aggregated_accuracy(data)
    return f"{sentence}{'' if aggregated is None else f' (aggregated model: {_format_fraction(aggregated)})'}."


def _describe_basis(summary: Mapping[str, Any]) -> str:
    """The samples from which the accuracy is estimated."""
    labels = f"{summary['labels_random']} given labels" if summary.get("labels_random") else None
    clients = "the clients' held-out samples" if summary.get("validation_clients", 1) else None
    return " and ".join(part for part in (clients, labels) if part) or "the clients' held-out samples"


def _describe_end(data: RunData) -> str:
    summary = data.summary or {}
    end = "interrupted" if summary.get("interrupted") else "stopped" if summary.get("stop_reason") else None
    if end is None:
        return ""
    reason = f": {str(summary['stop_reason']).rstrip('.')}" if end == "stopped" else ""
    return f"The run was {end} after {summary['rounds']} of {summary['rounds_requested']} rounds{reason}."


def _format_summary_value(key: str, value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key == "seconds":
        return format_duration(value)
    if key.startswith(("epsilon_", "privacy_")) and isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _format_fraction(fraction: float) -> str:
    return f"{fraction:.2f}"


def _exclusion_reasons(clients: Mapping[str, Any] | Sequence[int]) -> Iterable[str]:
    """One reason per excluded client, from a mapping of clients to reasons or a list of clients."""
    return (
        (str(reason) for reason in clients.values()) if isinstance(clients, Mapping) else (_NOT_FINITE for _ in clients)
    )


def _format_rounds(numbers: Sequence[int]) -> str:
    rounds = list(dict.fromkeys(numbers))
    if len(rounds) > _MAX_ROUNDS:
        return f"in {len(rounds)} rounds, first in round {rounds[0]}"
    return f"round{'' if len(rounds) == 1 else 's'} {join_words([str(number) for number in rounds])}"


def _describe_resume(number: int, changes: Mapping[str, Mapping[str, Any]]) -> str:
    if not changes:
        return f"The run was stopped after round {number} and resumed with the same settings."
    changed = [
        f"{key} = {format_value(change.get('to'))} (was {format_value(change.get('from'))})"
        for key, change in changes.items()
    ]
    return f"The run was stopped after round {number} and resumed with other settings: {join_words(changed)}."


def format_value(value: Any) -> str:
    """The value of a setting."""
    return "not set" if value is None else str(value)
