"""What happened beside the rounds, in sentences: warnings, clients left out, what a resume changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .facts import Facts

#: The one reason there was before rounds told it.
_NOT_FINITE = "numbers that were not finite"
#: So many rounds are named, the rest are counted.
_MOST_ROUNDS = 10


def warnings_of(facts: Facts) -> list[str]:
    """What a reader must not overlook: what the run itself warned of, and whom it left out."""
    told = (facts.summary or {}).get("warnings") or []
    return [*(str(sentence) for sentence in told), *left_out(facts.metrics)]


def left_out(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each reason for which clients' updates were left out."""
    rounds: dict[str, list[int]] = {}
    for line in metrics:
        for reason in _reasons(line.get("left_out") or []):
            rounds.setdefault(reason, []).append(line["round"] + 1)
    return [
        f"{counted(len(found), 'update')} of clients {'was' if len(found) == 1 else 'were'} left out "
        f"({_in_rounds(found)}): {reason.rstrip('.')}."
        for reason, found in rounds.items()
    ]


def resumed(facts: Facts) -> list[str]:
    """A sentence for each time that the run was resumed."""
    return [_resumed(number, changes) for number, changes in sorted(facts.resumes.items())]


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "round"), counted(1200, "sample")
    ('1 round', '1,200 samples')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def listed(words: Sequence[str]) -> str:
    """Words as a sentence lists them.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def _reasons(told: Mapping[str, Any] | Sequence[int]) -> Iterable[str]:
    """A reason for each client that was left out, from a mapping of clients to reasons or a list of clients."""
    return (str(reason) for reason in told.values()) if isinstance(told, Mapping) else (_NOT_FINITE for _ in told)


def _in_rounds(numbers: Sequence[int]) -> str:
    found = list(dict.fromkeys(numbers))
    if len(found) > _MOST_ROUNDS:
        return f"in {len(found)} rounds, first in round {found[0]}"
    return f"round{'' if len(found) == 1 else 's'} {listed([str(number) for number in found])}"


def _resumed(number: int, changes: Mapping[str, Mapping[str, Any]]) -> str:
    if not changes:
        return f"The run was stopped after round {number} and resumed with the same settings."
    told = [
        f"{key} became {_said(change.get('to'))} (was {_said(change.get('from'))})" for key, change in changes.items()
    ]
    return f"The run was stopped after round {number} and resumed with other settings: {listed(told)}."


def _said(value: Any) -> str:
    return "not set" if value is None else str(value)
