"""What the clients of one round send, compared with each other: one client must not outweigh all others.

The norm of each update, and of what else a client sends in the form of weights (such as Scaffold's variates), is
compared with the round's median. One that is too long is shortened; one that is far too long is excluded. Both are
reported. Directions are not compared: near the optimum the honest updates of different clients point against each
other (docs/explanation/security.md has the figures).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..algorithms import ClientUpdate
from ..algorithms.types import Weights
from ..models.group import trained_member

#: A norm above this multiple of the round's median is shortened to it. Honest clients reached 2.9 in 12
#: rounds of FedAvg, and 9.3 with Scaffold (docs/explanation/security.md).
MAX_RATIO = 3.0
#: Above this multiple the client is excluded: three times what honest clients reached, so that none of them is banned.
EXCLUSION_RATIO = 30.0
#: With fewer updates the median says nothing about any one of them.
_MIN_UPDATES = 3
#: Elements per block of a norm: the block's difference fits into a core's cache.
_NORM_BLOCK = 1 << 16
#: Within this range a float32 norm neither overflows nor underflows.
_SAFE_NORMS = (1e-12, 1e15)


@dataclass(frozen=True)
class Screening:
    """The updates of a round after the comparison.

    Attributes:
        updates: those that are used, shortened where they were too long.
        shortened: the clients of the shortened ones, each with the reason.
        excluded: the excluded clients, each with the reason.
    """

    updates: list[ClientUpdate]
    shortened: dict[int, str] = field(default_factory=dict)
    excluded: dict[int, str] = field(default_factory=dict)


def screen_updates(start: Weights, updates: Sequence[ClientUpdate]) -> Screening:
    """Shorten updates and payloads that are too long, and exclude the clients of those that are far too long.

    Updates that are within the bounds are returned as the same objects.

    Args:
        start: theta_t.
        updates: of one round.
    """
    members = {trained_member(update.weights) for update in updates}
    if len(members) > 1:
        # Updates of different models have different norms.
        parts = [
            screen_updates(start, [update for update in updates if trained_member(update.weights) == member])
            for member in sorted(members, key=str)
        ]
        kept = {update.client: update for part in parts for update in part.updates}
        return Screening(
            [kept[update.client] for update in updates if update.client in kept],
            {client: reason for part in parts for client, reason in part.shortened.items()},
            {client: reason for part in parts for client, reason in part.excluded.items()},
        )
    if len(updates) < _MIN_UPDATES:
        return Screening(list(updates))
    update_ratios = _ratios([update_norm(start, update.weights) for update in updates])
    payload_ratios = _ratios([_payload_norm(start, update.payload) for update in updates])
    used: list[ClientUpdate] = []
    shortened, excluded = {}, {}
    for update, of_weights, of_payload in zip(updates, update_ratios, payload_ratios, strict=True):
        reasons = [
            f"its {name} is {ratio:.3g} times as large as the round's median"
            for name, ratio in (("update", of_weights), ("payload", of_payload))
            if ratio > MAX_RATIO
        ]
        if max(of_weights, of_payload) > EXCLUSION_RATIO:
            excluded[update.client] = " and ".join(reasons)
            continue
        if reasons:
            shortened[update.client] = " and ".join(reasons)
        used.append(_shorten(start, update, of_weights, of_payload))
    return Screening(used, shortened, excluded)


def find_culprit(start: Weights, updates: Sequence[ClientUpdate]) -> ClientUpdate | None:
    """The update to which a result that is not finite is due: far larger than the median of the others; None if none.

    It finds the larger one of two updates, which `screen_updates` does not compare.
    """
    if len(updates) < 2:
        return None
    norms = [update_norm(start, update.weights) for update in updates]
    largest = max(norms)
    index = norms.index(largest)
    others = norms[:index] + norms[index + 1 :]
    return updates[index] if largest > EXCLUSION_RATIO * statistics.median(others) else None


def update_norm(start: Weights, weights: Weights) -> float:
    """||theta_{t,k} - theta_t|| over the floating-point entries, for norms of any size."""
    # Integer buffers, such as BatchNorm's counters, are not weights.
    norms = (
        _distance(weights[name].detach().cpu(), value.detach().cpu())
        for name, value in start.items()
        if value.is_floating_point()
    )
    return math.hypot(*norms)


def _payload_norm(start: Weights, payload: Weights) -> float:
    return math.hypot(*(_distance(value, torch.zeros_like(value)) for value in _weight_like(start, payload).values()))


def _weight_like(start: Weights, payload: Weights) -> Mapping[str, Tensor]:
    """The entries with the name and the shape of a weight; what the others mean only the algorithm knows."""
    return {
        name: value
        for name, value in payload.items()
        if name in start and value.shape == start[name].shape and value.is_floating_point()
    }


def _ratios(norms: Sequence[float]) -> list[float]:
    """Each norm divided by the median; 0 where the median is 0 and nothing can be compared."""
    median = statistics.median(norms)
    return [norm / median if median > 0 else 0.0 for norm in norms]


def _shorten(start: Weights, update: ClientUpdate, of_weights: float, of_payload: float) -> ClientUpdate:
    if of_weights > MAX_RATIO:
        share = MAX_RATIO / of_weights
        weights = {
            name: start[name] + share * (value - start[name]) if value.is_floating_point() else value
            for name, value in update.weights.items()
        }
        update = replace(update, weights=weights)
    if of_payload > MAX_RATIO:
        share = MAX_RATIO / of_payload
        payload = {name: share * value for name, value in _weight_like(start, update.payload).items()}
        update = replace(update, payload={**update.payload, **payload})
    return update


def _distance(one: Tensor, other: Tensor) -> float:
    """||one - other||, in float64 (five times slower) only where the squares could leave float32's range."""
    # Block by block: the difference of a whole layer would go to memory and back.
    blocks = zip(one.float().reshape(-1).split(_NORM_BLOCK), other.float().reshape(-1).split(_NORM_BLOCK), strict=True)
    distance = math.hypot(*(float((left - right).norm()) for left, right in blocks))
    return distance if _SAFE_NORMS[0] < distance < _SAFE_NORMS[1] else float((one.double() - other.double()).norm())
