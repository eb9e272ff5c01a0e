"""A run in words and in a few numbers."""

from __future__ import annotations

from typing import Any

from .events import counted
from .facts import Answer, Facts


def headline(facts: Facts) -> str:
    """What happened, in a sentence or two."""
    if facts.answer is None:
        return (
            f"{facts.algorithm} has done {counted(len(facts.metrics), 'round')} on {facts.dataset} and has "
            "not come to its end: there are no predictions yet."
        )
    sentence = (
        f"{facts.algorithm} labelled {counted(len(facts.answer.ids), 'sample')} of {facts.dataset} it never "
        f"saw a label of; {_how_right(facts, facts.answer)}."
    )
    return f"{sentence} {_how_it_ended(facts)}".strip()


def tiles(facts: Facts) -> list[tuple[str, str]]:
    """The few numbers that a reader looks for first, as (value, what it is)."""
    shown: list[tuple[str, str]] = []
    if facts.examination is not None:
        shown.append((_two(facts.examination.accuracy), "accuracy"))
        plain = plain_average(facts)
        if plain is not None:
            shown.append((_two(plain), "accuracy of the plain average"))
    elif facts.answer is not None:
        estimated = _estimated(facts)
        if estimated is not None:
            shown.append((estimated, f"accuracy, as the clients estimate it{_on_what(facts)}"))
        shown.append((_two(float(facts.answer.confidences.mean())), "mean confidence"))
    if facts.answer is not None:
        shown.append((f"{len(facts.answer.ids):,}", "samples labelled"))
    shown.append((str(len(facts.metrics)), "rounds"))
    shown.append((duration(facts.seconds), "of computing"))
    return shown


def plain_average(facts: Facts) -> float | None:
    """Accuracy of the plain average in the last scored round; None where that is the answer itself."""
    last = facts.last_scored
    return last.get("acc_aggregated") if last is not None and last.get("acc_refined") is not None else None


def summary_rows(facts: Facts) -> list[tuple[str, str]]:
    """The summary, in words; what a chart or a table of its own shows is left out."""
    rows = [
        (_WORDS.get(key, key.replace("_", " ")), _value(key, value))
        for key, value in (facts.summary or {}).items()
        if key in _MARKS or not (value is None or isinstance(value, dict | list))
    ]
    for key, words in (("bytes_down", "sent to the clients"), ("bytes_up", "sent by the clients")):
        if any(line.get(key) for line in facts.metrics):
            rows.append((words, size(sum(line.get(key) or 0 for line in facts.metrics))))
    return rows


def size(number: float) -> str:
    """Bytes as a person says them.

    >>> size(900), size(1_500_000)
    ('900 bytes', '1.5 MB')
    """
    for unit, length in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= length:
            return f"{number / length:.1f} {unit}"
    return f"{number:.0f} bytes"


def duration(seconds: float) -> str:
    """Seconds as a person says them.

    >>> duration(4.26), duration(75), duration(9000)
    ('4.3 s', '1.2 min', '2.5 h')
    """
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


#: Said to be not known where they are not; what else is missing is left out.
_MARKS = ("accuracy", "macro_f1", "mean_accuracy_over_rounds")
_WORDS = {
    "preset": "preset of settings",
    "rounds": "rounds done",
    "rounds_asked_for": "rounds asked for",
    "seconds": "time spent computing",
    "estimated_accuracy": "accuracy, as the clients estimate it",
    "estimated_error": "standard error of that",
    "estimated_on": "the clients estimate it on",
    "mean_accuracy_over_rounds": "mean accuracy over the rounds",
    "macro_f1": "macro F1",
    "epsilon_server": "privacy budget epsilon, towards the server",
    "epsilon_release": "privacy budget epsilon, of what is released",
    "privacy_delta": "delta of the privacy budget",
    "privacy_note": "on the privacy budget",
}


def _how_right(facts: Facts, answer: Answer) -> str:
    examined = facts.examination
    if examined is None:
        mean, estimated = _two(float(answer.confidences.mean())), _estimated(facts)
        guess = "" if estimated is None else f", {estimated} of them by the clients' own estimate{_on_what(facts)}"
        return f"how many are right is not known{guess}, its mean confidence is {mean}"
    share = _two(examined.accuracy)
    if examined.marked is not None and examined.marked < len(answer.ids):
        sentence = f"of the {examined.marked} whose true label is known to the examiner, {share} are right"
    else:
        sentence = f"{share} of them right"
    plain = plain_average(facts)
    if plain is None:
        return sentence
    return f"{sentence}, where the plain average of the clients' models stood at {_two(plain)}"


def _how_it_ended(facts: Facts) -> str:
    summary = facts.summary or {}
    how = "interrupted" if summary.get("interrupted") else "stopped" if summary.get("stopped") else None
    if how is None:
        return ""
    reason = f": {str(summary['stopped']).rstrip('.')}" if how == "stopped" else ""
    return f"The run was {how} after {summary['rounds']} of {summary['rounds_asked_for']} rounds{reason}."


def _value(key: str, value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key == "seconds":
        return duration(value)
    if key.startswith(("epsilon_", "privacy_")) and isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _estimated(facts: Facts) -> str | None:
    """The accuracy that the clients estimate, with its standard error; None where nobody judges."""
    summary = facts.summary or {}
    if summary.get("estimated_accuracy") is None:
        return None
    return f"{_two(summary['estimated_accuracy'])} ± {summary['estimated_error']:.2f}"


def _on_what(facts: Facts) -> str:
    """What the estimate is of, where a reader must know that to use it."""
    of_what = (facts.summary or {}).get("estimated_on")
    return f" on {of_what}" if of_what else ""


def _two(share: float) -> str:
    return f"{share:.2f}"
