"""Updates that are finite, and yet far larger than all others: a client that diverges, or means harm."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from torch import Tensor

from ..algorithms import ClientUpdate
from ..algorithms.exchange import Weights

#: An update is far off when its norm is so many times the round's median. Honest clients with a tenth of the others'
#: samples, or ten times as many, stay below it.
FAR = 10.0
#: Fewer updates have no middle that one of them could be far from.
_FEWEST = 3
#: Numbers whose difference stays in a core's cache.
_PART = 1 << 16
#: Between these a norm of float32 is right to some digits, and more is not asked of it.
_SAFE = (1e-12, 1e15)


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
    # Counters are no weights, and nothing that is finite overflows.
    norms = (
        _distance(weights[name].detach().cpu(), value.detach().cpu())
        for name, value in start.items()
        if value.is_floating_point()
    )
    return math.hypot(*norms)


def _distance(one: Tensor, other: Tensor) -> float:
    """||one - other||; in doubles, which takes five times as long, where the squares could leave float32's range."""
    # Part by part: a difference as large as a layer would go to memory and back.
    parts = zip(one.float().reshape(-1).split(_PART), other.float().reshape(-1).split(_PART), strict=True)
    distance = math.hypot(*(float((left - right).norm()) for left, right in parts))
    return distance if _SAFE[0] < distance < _SAFE[1] else float((one.double() - other.double()).norm())
