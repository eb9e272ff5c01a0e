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
    warnings = (facts.summary or {}).get("warnings") or []
    return [*(str(sentence) for sentence in warnings), *left_out(facts.metrics), *troubles(facts.metrics)]


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


def troubles(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rounds that asked others, rounds that kept the old model, and clients whose updates were used and look wrong."""
    sentences = []
    retried = [line["round"] + 1 for line in metrics if line.get("retries")]
    if retried:
        sentences.append(f"Too few updates could be used, and other clients were asked ({_in_rounds(retried)}).")
    kept = [line["round"] + 1 for line in metrics if line.get("clients") and _all_left_out(line)]
    if kept:
        sentences.append(f"No update could be used, and the model stayed as it was ({_in_rounds(kept)}).")
    far: dict[str, list[int]] = {}
    for line in metrics:
        for client in line.get("far_off") or {}:
            far.setdefault(str(client), []).append(line["round"] + 1)
    sentences += [
        f"Client {client} sent updates far larger than the others' ({_in_rounds(rounds)}): it diverges, or means harm; "
        "FedML's defences (docs/registering.md) bound what one client can do."
        for client, rounds in far.items()
    ]
    return sentences


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


def _all_left_out(line: Mapping[str, Any]) -> bool:
    out = {str(client) for client in line.get("left_out") or []}
    return {str(client) for client in line["clients"]} <= out


def _reasons(clients: Mapping[str, Any] | Sequence[int]) -> Iterable[str]:
    """A reason for each client that was left out, from a mapping of clients to reasons or a list of clients."""
    return (
        (str(reason) for reason in clients.values()) if isinstance(clients, Mapping) else (_NOT_FINITE for _ in clients)
    )


def _in_rounds(numbers: Sequence[int]) -> str:
    found = list(dict.fromkeys(numbers))
    if len(found) > _MOST_ROUNDS:
        return f"in {len(found)} rounds, first in round {found[0]}"
    return f"round{'' if len(found) == 1 else 's'} {listed([str(number) for number in found])}"


def _resumed(number: int, changes: Mapping[str, Mapping[str, Any]]) -> str:
    if not changes:
        return f"The run was stopped after round {number} and resumed with the same settings."
    became = [
        f"{key} became {_said(change.get('to'))} (was {_said(change.get('from'))})" for key, change in changes.items()
    ]
    return f"The run was stopped after round {number} and resumed with other settings: {listed(became)}."


def _said(value: Any) -> str:
    return "not set" if value is None else str(value)
