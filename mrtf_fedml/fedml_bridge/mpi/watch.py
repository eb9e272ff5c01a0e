"""Which ranks are at work on what, and since when: one that hangs must not stop the run without a word."""

from __future__ import annotations

import logging
import time

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
        self._at_work: dict[int, tuple[int, int, float]] = {}
        self._warned: set[int] = set()

    def begins(self, rank: int, client: int, round_index: int) -> None:
        """The rank is handed a client."""
        self._at_work[rank] = (client, round_index, time.monotonic())
        self._warned.discard(rank)

    def answers(self, rank: int) -> None:
        """The rank has sent what it was asked for."""
        self._at_work.pop(rank, None)

    def look(self) -> None:
        """Warn of a rank that takes long, and end the run for one that takes too long."""
        now = time.monotonic()
        for rank, (client, round_index, since) in self._at_work.items():
            seconds = now - since
            if seconds > self.timeout:
                raise RunStopped(
                    f"rank {rank} gave no answer for client {client} of round {round_index} within {self.timeout:g} s "
                    "(comm_args.rank_timeout): it hangs, or its host cannot be reached; the rounds before are saved: "
                    f"go on with `mrtf run --resume {self.run_dir}` under mpirun"
                )
            if seconds > self.timeout * _WARNING_SHARE and rank not in self._warned:
                self._warned.add(rank)
                _log.warning(
                    "rank %d has given no answer for client %d of round %d for %.0f s; after %g s "
                    "(comm_args.rank_timeout) the run ends",
                    rank,
                    client,
                    round_index,
                    seconds,
                    self.timeout,
                )
