"""What the clients of one round send, compared with each other: one client must not outweigh all others.

The norm of each update, and of what else a client sends in the form of weights (such as Scaffold's variates), is
compared with the round's median. One that is too long is shortened; one that is far too long is excluded. A client
whose update points against the others' is suspect, if these agree with each other: near the optimum the honest updates
of different clients may all point against each other. All three are reported.
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
#: rounds of FedAvg, and 9.3 with Scaffold.
MAX_RATIO = 3.0
#: Above this multiple the client is excluded: three times what honest clients reached, so that none of them is banned.
EXCLUSION_RATIO = 30.0
#: An update points against the others' if its cosine with the sum of theirs, each of length 1, is below the first
#: number; they agree with each other if the mean cosine of two of them is above the second one.
_OPPOSED, _AGREEING = -0.3, 0.1
#: With fewer updates the median says nothing about any one of them.
_MIN_UPDATES = 3
#: Elements of a block of all vectors: it fits into a core's cache.
_BLOCK_ELEMENTS = 1 << 18
#: Within this range the squares of norms neither overflow nor underflow in float32.
_SAFE_NORMS = (1e-12, 1e15)


@dataclass(frozen=True)
class Screening:
    """The updates of a round after the comparison.

    Attributes:
        updates: those that are used, shortened where they were too long, without losses that are far too large; those
            of shortened and opposed clients are marked.
        shortened: the clients of these, each with the reason.
        excluded: the excluded clients, each with the reason.
        opposed: the clients whose updates or payloads point against the others', each with the reason. They are used.
    """

    updates: list[ClientUpdate]
    shortened: dict[int, str] = field(default_factory=dict)
    excluded: dict[int, str] = field(default_factory=dict)
    opposed: dict[int, str] = field(default_factory=dict)


def screen_updates(start: Weights, updates: Sequence[ClientUpdate]) -> Screening:
    """Shorten updates and payloads that are too long, and exclude the clients of those that are far too long.

    A loss that is far larger than the others' is not used: it would change the mean, and its client would stay unnamed.
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
            {client: reason for part in parts for client, reason in part.opposed.items()},
        )
    if len(updates) < _MIN_UPDATES:
        return Screening(list(updates))
    products = _products_of_updates(start, updates)
    payload_products = inner_products([_weight_like(start, update.payload) for update in updates])
    median_loss = statistics.median([update.loss for update in updates if update.loss is not None] or [0.0])
    # Cross-entropies below 1 differ by large factors between honest clients.
    usual_loss = max(abs(median_loss), 1.0)
    used: list[ClientUpdate] = []
    rows: list[int] = []
    shortened, excluded = {}, {}
    for row, (update, of_weights, of_payload) in enumerate(
        zip(updates, _ratios(_norms(products)), _ratios(_norms(payload_products)), strict=True)
    ):
        reasons = [
            f"its {name} is {ratio:.3g} times as large as the round's median"
            for name, ratio in (("update", of_weights), ("payload", of_payload))
            if ratio > MAX_RATIO
        ]
        if max(of_weights, of_payload) > EXCLUSION_RATIO:
            excluded[update.client] = " and ".join(reasons)
            continue
        if update.loss is not None and abs(update.loss) > EXCLUSION_RATIO * usual_loss:
            reasons.append(f"its loss is {update.loss:.3g}, the round's median {median_loss:.3g}")
            update = replace(update, loss=None)
        if reasons:
            shortened[update.client] = " and ".join(reasons)
        used.append(_shorten(start, update, of_weights, of_payload))
        rows.append(row)
    opposed: dict[int, str] = {}
    for name, matrix in (("payload", payload_products), ("update", products)):
        # Shortening keeps the directions.
        for update, cosine in zip(used, find_opposed(matrix[rows][:, rows]), strict=True):
            if cosine is not None:
                opposed[update.client] = f"its {name} points against the others' (cosine {cosine:.2f})"
    used = [
        replace(update, is_outlier=update.client in shortened, is_opposed=update.client in opposed)
        if update.client in shortened or update.client in opposed
        else update
        for update in used
    ]
    return Screening(used, shortened, excluded, opposed)


def find_opposed(products: Tensor) -> list[float | None]:
    """The cosine of each vector with the sum of the others, each of length 1, where it points against them; else None.

    With u_k of length 1 and s = sum_k u_k: cos_k = <u_k, s - u_k> / |s - u_k|, and the mean cosine of two of the K - 1
    others is (|s - u_k|^2 - (K - 1)) / ((K - 1) (K - 2)).

    Args:
        products: inner products [K, K] of the vectors. One of length 0 has no direction and is not compared.

    >>> vector = torch.tensor([1.0, 2.0])
    >>> find_opposed(inner_products([{"w": vector}] * 3 + [{"w": -vector}]))
    [None, None, None, -1.0]
    """
    cosines: list[float | None] = [None] * len(products)
    compared = products.diagonal().nonzero()[:, 0]
    others = len(compared) - 1
    if others + 1 < _MIN_UPDATES:
        return cosines
    lengths = products.diagonal()[compared].sqrt()
    along = (products[compared][:, compared] / lengths / lengths[:, None]).sum(dim=1)
    squared = float(along.sum())
    for index, product in zip(compared.tolist(), along.tolist(), strict=True):
        rest = squared - 2 * product + 1
        agreement = (rest - others) / (others * (others - 1))
        if agreement > _AGREEING and (cosine := (product - 1) / math.sqrt(rest)) < _OPPOSED:
            cosines[index] = round(cosine, 6)
    return cosines


def inner_products(vectors: Sequence[Mapping[str, Tensor]], start: Weights | None = None) -> Tensor:
    """<v_j - start, v_k - start> as a matrix [K, K] in float64, for norms of any size.

    Args:
        vectors: K mappings from names to tensors; a missing entry counts as zeros.
        start: subtracted from each vector.
    """
    products = _products(vectors, start, torch.float32)
    squares = products.diagonal()
    if bool(((squares > _SAFE_NORMS[0] ** 2) & (squares < _SAFE_NORMS[1] ** 2)).all()):
        return products
    return _products(vectors, start, torch.float64)


def _products(vectors: Sequence[Mapping[str, Tensor]], start: Weights | None, dtype: torch.dtype) -> Tensor:
    products = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    size = max(_BLOCK_ELEMENTS // len(vectors), 1)
    # The vectors' own order: it is the same on every backend.
    for name in dict.fromkeys(name for vector in vectors for name in vector):
        present = [index for index, vector in enumerate(vectors) if name in vector]
        rows = [vectors[index][name].detach().cpu().reshape(-1) for index in present]
        origin = None if start is None else start[name].detach().cpu().reshape(-1)
        for begin in range(0, len(rows[0]), size):
            block = torch.stack([row[begin : begin + size] for row in rows]).to(dtype)
            if origin is not None:
                block -= origin[begin : begin + size]
            part = block @ block.T
            if len(present) == len(vectors):
                products += part
            else:
                index = torch.tensor(present)
                products[index[:, None], index] += part
    return products


def _products_of_updates(start: Weights, updates: Sequence[ClientUpdate]) -> Tensor:
    # Integer buffers, such as BatchNorm's counters, are not weights.
    names = [name for name, value in start.items() if value.is_floating_point()]
    return inner_products([{name: update.weights[name] for name in names} for update in updates], start)


def _norms(products: Tensor) -> list[float]:
    norms: list[float] = products.diagonal().sqrt().tolist()
    return norms


def find_culprit(start: Weights, updates: Sequence[ClientUpdate]) -> ClientUpdate | None:
    """The update to which a result that is not finite is due: far larger than the median of the others; None if none.

    It finds the larger one of two updates, which `screen_updates` does not compare.
    """
    if len(updates) < 2:
        return None
    norms = _norms(_products_of_updates(start, updates))
    largest = max(norms)
    index = norms.index(largest)
    others = norms[:index] + norms[index + 1 :]
    return updates[index] if largest > EXCLUSION_RATIO * statistics.median(others) else None


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
