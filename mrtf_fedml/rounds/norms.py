"""Updates that are finite, and yet far larger than all others: a client that diverges, or means harm."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ..algorithms import ClientUpdate
from ..algorithms.exchange import Weights

#: An update is far off when its norm is so many times the round's median. Honest clients with a tenth of the others'
#: samples, or ten times as many, stay below it.
FAR = 10.0
#: Fewer updates have no middle that one of them could be far from.
_FEWEST = 3


def far_off(start: Weights, updates: Sequence[ClientUpdate]) -> dict[int, str]:
    """The clients whose ||theta_{t,k} - theta_t|| is more than `FAR` times the median, each with a reason.

    Args:
        start: theta_t.
        updates: of one round.
    """
    if len(updates) < _FEWEST:
        return {}
    norms = {update.client: _norm(start, update.weights) for update in updates}
    middle = statistics.median(norms.values())
    return {
        client: f"its update is {norm / middle:.3g} times as large as the round's median"
        for client, norm in norms.items()
        if norm > FAR * middle > 0
    }


def _norm(start: Weights, weights: Weights) -> float:
    # Counters are no weights, and in doubles nothing that is finite overflows.
    norms = (
        float((weights[name].detach().cpu().double() - value.detach().cpu().double()).norm())
        for name, value in start.items()
        if value.is_floating_point()
    )
    return math.hypot(*norms)
