"""The server of a federation across silos: it chooses, hands out, waits no longer than it must, and aggregates."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from fedml.core.distributed.communication.message import Message

from ...algorithms import NoReply
from ...algorithms.sampling import chosen_among
from ...errors import RunStopped, UserError
from ...rounds.round import Handout, Reply
from ..messages import scale_payload
from ..server_side import AlgorithmAggregator
from ..session import Session
from . import protocol
from .at_hand import RoundAtHand, given_to_each
from .expected_weights import ExpectedWeights, Malformed
from .liveness import Heartbeat
from .manager import SiloManager, seconds_until
from .presence import Presence
from .terms import Terms
from .transports.backend import Unreachable

_log = logging.getLogger(__name__)

#: Seconds that the server waits for the silos' last words; their answers are all there already.
_FAREWELL_SECONDS = 15.0


class SiloServer(SiloManager):
    """Rank 0. Its inputs are bound to its aggregator and leave this process in no message."""

    #: A silo that cannot be reached for so long is counted as lost, until it says that it is back.
    patience: ClassVar[float | None] = 10.0

    def __init__(self, args: Any, device: torch.device, dataset: Any, aggregator: AlgorithmAggregator) -> None:
        settings = aggregator.server.settings
        train = settings.train
        if settings.silo.min_silos > train.client_num_per_round:
            raise UserError(
                f"comm_args.min_silos is {settings.silo.min_silos} but only {train.client_num_per_round} silos take "
                "part in a round (train_args.client_num_per_round); lower it"
            )
        self.aggregator = aggregator
        super().__init__(args, settings, ExpectedWeights(aggregator.get_model_params()))
        try:
            # After the port is open, so that a run that cannot start leaves no folder behind.
            self.session = Session(args, device, dataset, aggregator)
        except BaseException:
            self.close()
            raise
        self.presence = Presence([party for party, rank in self.address.ranks.items() if rank > 0])
        self.terms = Terms.of(aggregator.get_model_params(), self.session.dataset.class_names, settings.privacy)
        self._faults: Counter[int] = Counter()
        self._hand = RoundAtHand()
        self._heartbeat = Heartbeat(self._beat, self.silo_settings.silo_timeout)

    def register_message_receive_handlers(self) -> None:
        """What a server is told."""
        self.register_message_receive_handler(protocol.STATUS, self._on_status)
        self.register_message_receive_handler(protocol.ANSWER, self._on_answer)

    def run(self) -> None:
        """All rounds; the silos are told how it ended."""
        reason = "it failed"
        try:
            self._heartbeat.start()
            if self.session.run.rounds_left:
                self._gather()
            self.session.play(self._ask, self._choose)
            reason = ""
        except KeyboardInterrupt:
            reason = "it was interrupted"
            raise
        except RunStopped as error:
            reason = str(error)
            raise
        finally:
            self._say_goodbye(reason)
            self._heartbeat.stop()
            self.close()

    def _gather(self) -> None:
        """Wait for the silos: for all of them, or, when the time is over, for enough."""
        seconds = self.silo_settings.start_timeout
        _log.info("the server waits for %d silos (up to %g s)", self.address.silos, seconds)
        deadline = time.monotonic() + seconds
        while len(self.presence.here) < self.address.silos and time.monotonic() < deadline:
            self.handle(self.next_message(seconds_until(deadline)))
        missing = [index + 1 for index in range(self.address.silos) if index not in self.presence.here]
        if missing:
            _log.warning("silos %s did not come within %g s; the run starts without them", missing, seconds)
        self._require_enough("came")

    def _choose(self, round_index: int, asked: Sequence[int]) -> list[int]:
        """The clients of a round, among those that are there."""
        self._drain()
        self._require_enough("are left")
        per_round, seed = self.settings.train.client_num_per_round, self.settings.common.random_seed
        return chosen_among(sorted(self.presence.here), asked, round_index, per_round, seed)

    def _ask(self, handout: Handout) -> list[Reply]:
        # Silos with files of their own cannot know the scale; all others have found the same one by themselves.
        own_files = self.settings.data.own_data_file is not None
        scale = self.session.dataset.preprocessing.scale if own_files else None
        self.com_manager.forget_packed()
        try:
            self._hand = RoundAtHand(handout, given_to_each(handout, scale_payload(scale), self.com_manager.pack))
        except Unreachable as error:
            raise RunStopped(f"the weights of round {handout.round} could not be handed out: {error}") from error
        for client in handout.clients:
            self._send_round(client)
        late, settings = self._collect(), self.silo_settings
        replies = self._hand.replies(late, self.address.patience, settings.silo_timeout)
        fault = self._hand.too_few(replies, settings.min_silos)
        if fault is not None:
            raise RunStopped(
                f"{fault}; the rounds before are saved: go on with `mrtf run --resume {self.session.store.path} "
                "--role server`"
            )
        return replies

    def _send_round(self, client: int) -> None:
        # One thread per silo: a silo that does not answer the call must not make the others wait.
        hand, party = self._hand, self.presence.id_of(client)
        message = protocol.hand_out(self.incarnation, party, client, hand.index, hand.awaited[client])
        incarnation = self.presence.incarnation_of(client)

        def send() -> None:
            if not self.tries_to_send(message):
                hand.unreached.add(client)
                self.presence.lose(client, incarnation)
                _log.warning("silo %d could not be reached for %g s", client + 1, self.address.patience)

        threading.Thread(target=send, name=f"round to silo {client + 1}", daemon=True).start()

    def _collect(self) -> set[int]:
        """Wait until every chosen silo has answered or is lost, or the time is over; those that are late.

        Where too few have answered, those that are lost have the rest of the time to come back.
        """
        deadline, hand = time.monotonic() + self.silo_settings.silo_timeout, self._hand
        while time.monotonic() < deadline and (hand.awaited or self._needs_lost()):
            self.handle(self.next_message(seconds_until(deadline, 0.5)))
            here = self.presence.here
            hand.lose_absent(here)
            if not hand.awaited and self._needs_lost():
                for client in sorted(here & hand.lost.keys()):
                    hand.await_again(client)
                    # It may have answered before it was lost: what it sends now is a second copy.
                    self.session.run.asking([client])
                    self._send_round(client)
        late = set(hand.awaited)
        for client in late:
            self.presence.lose(client, self.presence.incarnation_of(client))
        silent = [client + 1 for client in hand.silent]
        if silent:
            _log.warning("silos %s gave no answer in round %d and are left out of it", silent, hand.index)
        hand.awaited = {}
        return late

    def _needs_lost(self) -> bool:
        reachable = {*self.presence.away, *self.presence.here} if self.com_manager.takes_back else set()
        return self._hand.needs(self.silo_settings.min_silos, reachable)

    def _on_answer(self, message: Message) -> None:
        client = self.presence.client_of(protocol.sender_of(message))
        if client is None:
            return
        try:
            self._hand.take(client, message, self.expected)
        except Malformed as error:
            self._count_fault(client, str(error))
        else:
            self.presence.heard(client, protocol.incarnation_of(message))

    def _count_fault(self, client: int, reason: str) -> None:
        """Leave the silo out of the round at hand, and, after too many faults, out of all."""
        self._faults[client] += 1
        _log.warning("silo %d has sent an answer that cannot be used: %s", client + 1, reason)
        if client in self._hand.awaited:
            self._hand.answered(client, NoReply(client, f"its answer cannot be used: {reason}"))
        if self._faults[client] == self.silo_settings.max_faults:
            verdict = f"silo {client + 1} has had its comm_args.max_faults and is not chosen again; the last: {reason}"
            _log.warning("%s", verdict)
            self.presence.exclude(client)
            goodbye = protocol.finish(self.incarnation, self.presence.id_of(client), verdict)
            threading.Thread(target=self.tries_to_send, args=(goodbye,), name="verdict", daemon=True).start()

    def _on_status(self, message: Message) -> None:
        client = self.presence.client_of(protocol.sender_of(message))
        if client is None:
            return
        word, claimed = protocol.status_of(message)
        if word == protocol.FINISHED:
            self.presence.leave(client, protocol.incarnation_of(message))
            return
        reason = self.terms.difference(claimed, client + 1)
        if reason is not None:
            _log.warning("silo %d is refused: %s", client + 1, reason)
            self.tries_to_send(protocol.finish(self.incarnation, self.presence.id_of(client), reason))
            return
        anew = self.presence.heard(client, protocol.incarnation_of(message))
        self.com_manager.ping(protocol.ping(self.incarnation, self.presence.id_of(client)))
        if anew and client in self._hand.awaited:
            # It was started anew in the middle of the round, and has lost what it was given. It may have answered
            # before, too late to be counted: what it sends now is a second copy.
            self.session.run.asking([client])
            self._send_round(client)

    def _drain(self) -> None:
        while (message := self.next_message(0.0)) is not None:
            self.handle(message)

    def _require_enough(self, what: str) -> None:
        here, least = len(self.presence.here), self.silo_settings.min_silos
        if here < least:
            raise RunStopped(
                f"not enough silos {what}: {here} of {self.address.silos} are there and comm_args.min_silos is "
                f"{least}; start the others and go on with `mrtf run --resume {self.session.store.path} --role server`"
            )

    def _beat(self) -> None:
        for client in self.presence.expected(self.com_manager.takes_back):
            self.com_manager.ping(protocol.ping(self.incarnation, self.presence.id_of(client)))

    def _say_goodbye(self, reason: str) -> None:
        # Also to those of whom the server had no time to hear.
        self._drain()
        deadline = time.monotonic() + min(_FAREWELL_SECONDS, self.silo_settings.silo_timeout)
        for client in self.presence.away:
            # It may live all the same; nobody waits for it.
            self.com_manager.ping(protocol.finish(self.incarnation, self.presence.id_of(client), reason))
        for client in sorted(self.presence.here):
            self.tries_to_send(protocol.finish(self.incarnation, self.presence.id_of(client), reason))
        while self.presence.here and time.monotonic() < deadline:
            self.handle(self.next_message(seconds_until(deadline)))
        self.com_manager.ended_well = not reason and not self.presence.here
