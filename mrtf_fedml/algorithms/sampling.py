"""Selection of the clients of a round."""

from __future__ import annotations

from collections.abc import Sequence

from ..rng import numpy_generator


def select_clients(round_index: int, total: int, per_round: int, seed: int) -> list[int]:
    """S_t: `per_round` of `total` clients, without replacement, in ascending order.

    It depends on the seed and the round only, so that every algorithm, backend and resumed run selects the same.

    >>> select_clients(0, total=3, per_round=3, seed=1)
    [0, 1, 2]
    """
    return _draw_indices(total, per_round, seed, "client sampling", round_index)


def select_among(
    clients: Sequence[int], selected: Sequence[int], round_index: int, per_round: int, seed: int
) -> list[int]:
    """S_t among these clients; if some were selected in the round already (`selected`), among the others.

    >>> select_among([4, 6, 8], selected=[4, 8], round_index=0, per_round=2, seed=1)
    [6]
    """
    if not selected:
        return [clients[index] for index in select_clients(round_index, len(clients), per_round, seed)]
    others = [client for client in clients if client not in set(selected)]
    return [
        others[index]
        for index in _draw_indices(len(others), per_round, seed, "other clients", round_index, len(selected))
    ]


def _draw_indices(total: int, number: int, seed: int, *purpose: str | int) -> list[int]:
    if total == 0:
        return []
    generator = numpy_generator(seed, *purpose)
    return sorted(generator.choice(total, size=min(number, total), replace=False).tolist())
