"""Which clients take part in a round."""

from __future__ import annotations

from collections.abc import Sequence

from ..randomness import numpy_generator


def chosen_clients(round_index: int, total: int, per_round: int, seed: int) -> list[int]:
    """S_t: `per_round` of `total` clients, without replacement, in ascending order.

    It depends on the seed and the round alone, so every algorithm, backend and resumed run chooses alike.

    >>> chosen_clients(0, total=3, per_round=3, seed=1)
    [0, 1, 2]
    """
    return _places(total, per_round, seed, "client sampling", round_index)


def chosen_among(
    clients: Sequence[int], asked: Sequence[int], round_index: int, per_round: int, seed: int
) -> list[int]:
    """S_t among these clients; of those that have not been asked, where some of the round have been.

    >>> chosen_among([4, 6, 8], asked=[4, 8], round_index=0, per_round=2, seed=1)
    [6]
    """
    if not asked:
        return [clients[place] for place in chosen_clients(round_index, len(clients), per_round, seed)]
    others = [client for client in clients if client not in set(asked)]
    return [others[place] for place in _places(len(others), per_round, seed, "other clients", round_index, len(asked))]


def _places(total: int, number: int, seed: int, *purpose: str | int) -> list[int]:
    if total == 0:
        return []
    generator = numpy_generator(seed, *purpose)
    return sorted(generator.choice(total, size=min(number, total), replace=False).tolist())
