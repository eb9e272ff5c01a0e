"""The round at hand, as a server across silos sees it: who has answered, who is awaited, and who is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from fedml.core.distributed.communication.message import Message

from ...algorithms import ClientUpdate, NoReply
from ...rounds.round import Handout, Reply
from ..messages import Payload, start_payload, update_of
from .expected_weights import ExpectedWeights, Malformed
from .protocol import round_of, samples_of, weights_in


class RoundAtHand:
    """One handing out and what has come of it.

    Attributes:
        index: the number of the round; -1 before the first.
        awaited: by client, what it was given, while its answer is not there.
        lost: the same for those that were lost before they answered.
        answers: by client.
        unreached: those to whom the round could not be brought.
    """

    def __init__(self, handout: Handout | None = None, given: Mapping[int, Any] | None = None) -> None:
        self.index = -1 if handout is None else handout.round
        self.clients: Sequence[int] = [] if handout is None else handout.clients
        self.again = handout is not None and handout.again
        self._unusable = None if handout is None else handout.unusable
        self.awaited: dict[int, Any] = dict(given or {})
        self.lost: dict[int, Any] = {}
        self.answers: dict[int, Reply] = {}
        self.unreached: set[int] = set()

    @property
    def usable(self) -> int:
        """How many answers can be used, as far as their form tells."""
        return sum(isinstance(answer, ClientUpdate) for answer in self.answers.values())

    @property
    def silent(self) -> list[int]:
        """The clients that have given no answer at all."""
        return [client for client in self.clients if client not in self.answers]

    def take(self, client: int, message: Message, expected: ExpectedWeights) -> None:
        """Count the answer that a message carries; one to an earlier round shows only that its silo lives.

        Raises:
            Malformed: why it cannot be used.
        """
        if round_of(message) != self.index or client not in self.awaited:
            return
        try:
            samples, payload = samples_of(message), weights_in(message)
            expected.check(payload)
            update = update_of(client, samples, payload)
            fault = self._unusable(update) if self._unusable is not None else None
        except Malformed:
            raise
        except (ValueError, TypeError, ArithmeticError, LookupError, RuntimeError) as error:
            # Nobody has thought of everything: what cannot be checked cannot be used.
            raise Malformed(f"it cannot be read ({type(error).__name__})") from error
        if fault is not None:
            raise Malformed(fault)
        self.answered(client, update)

    def answered(self, client: int, answer: Reply) -> None:
        """What the client sent, or why it cannot be used."""
        self.answers[client] = answer
        self.awaited.pop(client, None)

    def lose_absent(self, here: Set[int]) -> None:
        """Await no more those that are not here."""
        for client in [client for client in self.awaited if client not in here]:
            self.lost[client] = self.awaited.pop(client)

    def await_again(self, client: int) -> None:
        """One that was lost is back."""
        self.awaited[client] = self.lost.pop(client)
        self.unreached.discard(client)

    def needs(self, least: int, reachable: Set[int]) -> bool:
        """Whether too few have answered, and one that is lost may still come back. Other clients are not waited for."""
        return bool(self.lost.keys() & reachable) and not self.again and self.usable < least

    def replies(self, late: Set[int], patience: float, timeout: float) -> list[Reply]:
        """An answer, or the reason why there is none, for each client.

        Args:
            late: those that were there, and gave no answer.
            patience: seconds for which the handing out was tried.
            timeout: seconds that each had.
        """

        def why(client: int) -> str:
            if client in self.unreached:
                return f"it could not be reached for {patience:g} s"
            if client in late:
                return f"it gave no answer within {timeout:g} s (comm_args.silo_timeout)"
            return "it was lost before it answered"

        return [self.answers.get(client) or NoReply(client, why(client)) for client in self.clients]

    def too_few(self, replies: Sequence[Reply], least: int) -> str | None:
        """Why the round cannot be finished; None where it can."""
        if self.again or self.usable >= least:
            return None
        reasons = [f"silo {reply.client + 1}: {reply.reason}" for reply in replies if isinstance(reply, NoReply)]
        return (
            f"in round {self.index} {self.usable} of {len(replies)} silos gave an answer that can be used, fewer than "
            f"comm_args.min_silos ({least}) ({'; '.join(reasons)})"
        )


def given_to_each(handout: Handout, scale: Payload, pack: Callable[[Payload], Any]) -> dict[int, Any]:
    """What each silo gets: all the same, packed once, but where the algorithm has something for each alone."""
    extras = {client: handout.extra(client) for client in handout.clients}
    shared = None if all(extras.values()) else pack({**handout.weights, **scale})
    return {
        client: pack({**start_payload(handout.weights, extra), **scale}) if extra else shared
        for client, extra in extras.items()
    }
