"""What the refinery stands on (`mrtf_args.base`), and what a preset's `auto` becomes.

Scaffold's variates tell a client what everybody's gradients are expected to be; they help as long as they are fresh.
Where a client is chosen often, the refinery gained by them in its first rounds and lost by them in the end, so they
fade; where it is seldom chosen, it gained more by sending the refined model back, which Scaffold bears less. Where all
clients take part, nobody's gradients need be expected, and a client whose labels are wrong shows in its model, which a
variate would draw to the others' (docs/choices.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..settings import RunSettings
from .fading_scaffold import FadingScaffold

AUTO = "auto"
#: The share of the clients in a round from which on each is chosen often enough for its variate to be fresh.
_OFTEN = 0.25


def base_word(word: str, settings: RunSettings) -> str:
    """The base's name: what the user wrote, or what `auto` is in this run, by a rule that every party can follow."""
    if word.lower() != AUTO:
        return word
    train = settings.train
    often = _OFTEN * train.client_num_in_total <= train.client_num_per_round < train.client_num_in_total
    return FadingScaffold.name if often and FadingScaffold.refused_by(settings) is None else "FedAvg"


def unless_named(given: Mapping[str, Any]) -> dict[str, Any]:
    """Where clients only train: a preset's `auto` is FedAvg; a base of the user's own is kept, and refused later on."""
    return {"base": "FedAvg"} if str(given.get("base", AUTO)).lower() == AUTO else {}
