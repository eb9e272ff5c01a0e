"""Which rank trains which clients of a round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class Placement:
    """The round's clients, heaviest first, each to the rank that is free next.

    FedML's `SeqTrainScheduler` plans a whole round ahead from a line fitted to past running times; it needs rounds of
    history, walks all clients by recursion, and cannot know that a rank has fallen behind. Handing out the next client
    when a rank is free needs none of that, and no rank idles while another has a client waiting. Who trains a client
    changes nothing in what comes of it, so the run stays reproducible.

    >>> placement = Placement([4, 7, 9], load={4: 10, 7: 300, 9: 20})
    >>> placement.next_client(), placement.next_client()
    (7, 9)
    >>> Placement([4, 7, 9], load={4: 10, 7: 300, 9: 20}).divided([1, 2])
    {1: [7], 2: [9, 4]}
    """

    def __init__(self, clients: Iterable[int], load: Mapping[int, int]) -> None:
        self._load = load
        self._waiting = sorted(clients, key=lambda client: (load[client], -client))

    def next_client(self) -> int | None:
        """The heaviest client that waits; None where all have been handed out."""
        return self._waiting.pop() if self._waiting else None

    def divided(self, ranks: Sequence[int]) -> dict[int, list[int]]:
        """All that wait, by rank, for when nobody can hand out the next: each to the rank with the least to do yet."""
        lots: dict[int, list[int]] = {rank: [] for rank in ranks}
        to_do = dict.fromkeys(ranks, 0)
        while (client := self.next_client()) is not None:
            rank = min(ranks, key=lambda one: (to_do[one], one))
            lots[rank].append(client)
            to_do[rank] += self._load[client]
        return lots
