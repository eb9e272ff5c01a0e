"""The next round's clients begin while the server finishes the last one, where nothing that they get depends on it.

A round goes through the same steps in the same order as in one process: callbacks, filters and records hear of it when
it is its turn. Only its clients are at work already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..algorithms import ServerState
from .asking import Choose
from .round import Handout

if TYPE_CHECKING:
    from .loop import Run

#: Has the clients of a handout train, and does not wait; whoever asks for the same handout later gets their replies.
Begin = Callable[[Handout], None]


class Ahead:
    """What was handed out before its turn.

    Args:
        run: in progress.
        choose: the clients of a round.
        begin: None where the backend has nobody who could work meanwhile.
    """

    def __init__(self, run: Run, choose: Choose, begin: Begin | None) -> None:
        self._run = run
        self._choose = choose
        self._begin = begin
        self._begun: Handout | None = None

    def begun(self) -> Handout | None:
        """What was begun of the round at hand, if that is what its clients are to get now that all is known."""
        begun, self._begun = self._begun, None
        if begun is None:
            return None
        due = Handout(self._run.algorithm, self._run.state, begun.clients)
        if not begun.gives_the_same_as(due):
            return None
        # The clients saw as much of the state as was known; what they reply is judged by all of it.
        begun.unusable = due.unusable
        return begun

    def next_round(self) -> Callable[[ServerState], None] | None:
        """What begins the round after the one at hand; None where it has to wait for its turn.

        Under `dp_args` it waits: the account tells what each round has spent when that is over, and one that is stopped
        must not have been charged for clients whom it never heard.
        """
        run = self._run
        is_last = run.state.round + 1 >= run.rounds
        if self._begin is None or is_last or run.stopped is not None or run.settings.privacy.active:
            return None
        return self._begin_from

    def _begin_from(self, early: ServerState) -> None:
        assert self._begin is not None
        self._begun = Handout(self._run.algorithm, early, self._choose(early.round, []))
        self._begin(self._begun)
