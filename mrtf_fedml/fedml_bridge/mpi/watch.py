"""Which ranks are at work on what, and since when: one that hangs must not stop the run without a word."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from ...errors import RunStopped

_log = logging.getLogger(__name__)

#: The share of `rank_timeout` after which a rank is named in the log; well before anything is ended for it.
_WARNING_SHARE = 0.25


class RankWatch:
    """The server's look at those who train for it.

    Args:
        timeout: seconds that a rank has for one client.
        run_dir: what to go on with.
    """

    def __init__(self, timeout: float, run_dir: str) -> None:
        self.timeout = timeout
        self.run_dir = run_dir
        self._at_work: dict[int, tuple[list[int], int, float]] = {}
        self._warned: set[int] = set()

    def begins(self, rank: int, clients: Sequence[int], round_index: int) -> None:
        """The rank is handed these clients, to be trained one after another."""
        self._warned.discard(rank)
        if clients:
            self._at_work[rank] = (list(clients), round_index, time.monotonic())

    def answers(self, rank: int) -> None:
        """The rank has sent what one of its clients was asked for."""
        clients, round_index, _ = self._at_work.pop(rank, ([], 0, 0.0))
        self.begins(rank, clients[1:], round_index)

    def listens(self) -> None:
        """From now on the server hears: what a rank sent while it worked is no delay of the rank's."""
        now = time.monotonic()
        self._at_work = {rank: (clients, index, now) for rank, (clients, index, _) in self._at_work.items()}

    def look(self) -> None:
        """Warn of a rank that takes long, and end the run for one that takes too long."""
        now = time.monotonic()
        for rank, (clients, round_index, since) in self._at_work.items():
            # A message may travel only when the rank is done with all it has.
            seconds, allowed = now - since, self.timeout * len(clients)
            if seconds > allowed:
                raise RunStopped(
                    f"rank {rank} gave no answer for client {clients[0]} of round {round_index} within {allowed:g} s "
                    "(comm_args.rank_timeout: it hangs, or its host cannot be reached; the rounds before are saved: "
                    f"go on with `mrtf run --resume {self.run_dir}` under mpirun"
                )
            if seconds > allowed * _WARNING_SHARE and rank not in self._warned:
                self._warned.add(rank)
                _log.warning(
                    "rank %d has given no answer for client %d of round %d for %.0f s; after %g s "
                    "(comm_args.rank_timeout) the run ends",
                    rank,
                    clients[0],
                    round_index,
                    seconds,
                    allowed,
                )
