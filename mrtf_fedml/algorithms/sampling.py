"""Which clients take part in a round."""

from __future__ import annotations

from ..randomness import numpy_generator


def chosen_clients(round_index: int, total: int, per_round: int, seed: int) -> list[int]:
    """S_t: `per_round` of `total` clients, without replacement, in ascending order.

    It depends on the seed and the round alone, so every algorithm, backend and resumed run chooses alike.

    >>> chosen_clients(0, total=3, per_round=3, seed=1)
    [0, 1, 2]
    """
    generator = numpy_generator(seed, "client sampling", round_index)
    return sorted(generator.choice(total, size=min(per_round, total), replace=False).tolist())
