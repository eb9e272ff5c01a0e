"""A run from its first round to its last: one loop, whichever backend moves the messages."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..algorithms import Algorithm, ServerBench, ServerState
from ..algorithms.sampling import chosen_among
from ..errors import FolderUnwritable, RunInterrupted, RunStopped
from ..settings import RunSettings
from .ahead import Ahead, Begin
from .asking import Ask, Choose, asked
from .callbacks import Callback
from .round import Filters, RoundRecord, play_round
from .scores import Scores
from .server import Server
from .store import RunStore
from .undisturbed import undisturbed

_log = logging.getLogger(__name__)


class Run:
    """A run in progress, as callbacks see it."""

    def __init__(
        self,
        server: Server,
        store: RunStore,
        scores: Scores,
        callbacks: Sequence[Callback] = (),
        filters: Filters | None = None,
    ) -> None:
        self.server = server
        self.store = store
        self.callbacks = list(callbacks)
        #: Why somebody asked the run to stop; None while nobody has.
        self.stopped: str | None = None
        #: What each teacher of the last finished round named, [K, M]; None where there were none.
        self.votes: Tensor | None = None
        #: What the last round was; None before the first one of this process. No label is in it.
        self.record: RoundRecord | None = None
        self._scores = scores
        self._filters = filters or Filters()
        self._read: tuple[ServerState, Tensor] | None = None

    @property
    def settings(self) -> RunSettings:
        """What the user has set."""
        return self.server.settings

    @property
    def algorithm(self) -> Algorithm:
        """What runs."""
        return self.server.algorithm

    @property
    def state(self) -> ServerState:
        """After the last finished round."""
        return self.server.state

    @property
    def bench(self) -> ServerBench:
        """The server's inputs, and a model to read them with."""
        return self.server.bench

    @property
    def rounds(self) -> int:
        """How many rounds were asked for."""
        return self.server.settings.train.comm_round

    @property
    def rounds_left(self) -> int:
        """None is left where a run was killed after its last round, and owes its answer alone."""
        return max(0, self.rounds - self.server.state.round)

    def answer_logits(self) -> Tensor:
        """The answer for the server's samples, [M, C]; read once per state."""
        if self._read is None or self._read[0] is not self.server.state:
            self._read = self.server.state, self.algorithm.answer_logits(self.server.state, self.server.bench)
        return self._read[1]

    def stop(self, reason: str) -> None:
        """End after the round at hand, with an answer and a report."""
        self.stopped = self.stopped or reason

    def asking(self, clients: Sequence[int]) -> None:
        """The round at hand is about to be handed out to these clients."""
        for callback in self.callbacks:
            callback.on_asking(self, clients)

    def play(self, ask: Ask, choose: Choose | None = None, begin: Begin | None = None) -> dict[str, Any] | None:
        """All rounds that are left; what was finished is written down also where the run is interrupted.

        Args:
            ask: has the clients train.
            choose: the clients of a round; drawn from all clients by the run's seed where it is not given.
            begin: has the next round's clients begin while this process finishes a round, where they can.

        Returns:
            the summary; None where not even one round was done.
        """
        choose = choose or self._drawn
        ahead = Ahead(self, choose, begin)
        try:
            for callback in self.callbacks:
                callback.on_start(self)
            # Without any round there is no answer: a run that is asked to stop before it does one.
            while self.rounds_left and (self.stopped is None or self.server.state.round == 0):
                self._play_one(ask, choose, ahead)
        except FolderUnwritable as error:
            raise self._told_how_to_go_on(error) from error
        except (KeyboardInterrupt, RunStopped) as interruption:
            _log.warning("interrupted after %d rounds; writing down what was finished", self.server.state.round)
            self._finish(interrupted=True)
            if isinstance(interruption, KeyboardInterrupt):
                raise RunInterrupted(self._where_it_is()) from interruption
            raise
        if self.stopped is not None:
            _log.warning("the run stops after %d rounds: %s", self.server.state.round, self.stopped)
        try:
            return self._finish()
        except FolderUnwritable as error:
            raise self._told_how_to_go_on(error) from error

    def _finish(self, interrupted: bool = False) -> dict[str, Any] | None:
        """The answer; whoever does not wait for it finds the rounds alone."""
        try:
            return self.finish(interrupted)
        except KeyboardInterrupt as again:
            raise RunInterrupted(
                f"interrupted while the answer was written; {self.server.state.round} of {self.rounds} rounds are in "
                f"{self.store.path}. Go on with: mrtf run --resume {shlex.quote(str(self.store.path))}"
            ) from again

    def _where_it_is(self) -> str:
        done, folder = self.server.state.round, self.store.path
        if done == 0:
            return f"interrupted before the first round was over: nothing was finished ({folder} can go)"
        return (
            f"interrupted after {done} of {self.rounds} rounds; predictions, model and report of these are in "
            f"{folder}. Go on with: mrtf run --resume {shlex.quote(str(folder))}"
        )

    def finish(self, interrupted: bool = False) -> dict[str, Any] | None:
        """Give the answer; None where not even one round was done."""
        if self.server.state.round == 0:
            return None
        summary = self._scores.summary(self, interrupted)
        for callback in self.callbacks:
            callback.on_end(self, summary)
        if not interrupted:
            self.store.note_answered(self.server.state.round)
        return summary

    def _play_one(self, ask: Ask, choose: Choose, ahead: Ahead) -> None:
        server = self.server
        arrived = asked(self, ask, choose, ahead.begun())
        server.state, self.record = play_round(
            server.algorithm, server.state, arrived, server.bench, self._filters, ahead.next_round()
        )
        self.votes = self.record.report.votes
        line = self._scores.line(self, self.record)
        with undisturbed():
            for callback in self.callbacks:
                callback.on_round(self, line)

    def _told_how_to_go_on(self, error: FolderUnwritable) -> FolderUnwritable:
        return FolderUnwritable(
            f"{error}; what was finished before is saved: go on with `mrtf run --resume {self.store.path}`"
        )

    def _drawn(self, round_index: int, asked: Sequence[int]) -> list[int]:
        train, seed = self.settings.train, self.settings.common.random_seed
        return chosen_among(range(train.client_num_in_total), asked, round_index, train.client_num_per_round, seed)
