"""The server of a federation across silos: it selects silos, sends them tasks and collects their updates."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import torch
from fedml.core.distributed.communication.message import Message

from ....algorithms import ClientFailure, ClientUpdate
from ....config import RunSettings
from ....errors import RunStopped
from ....training.round import Backend, Reply, RoundTasks
from ...adapters import AlgorithmAggregator
from ...messages import pack_scale, pack_task, unpack_update
from ...runner import RunOptions
from ...session import Session
from . import protocol
from .handshake import MAX_CLOCK_DIFFERENCE, Handshake
from .membership import Heartbeat, Membership
from .party import Party, check_role, seconds_until
from .payload_validation import PayloadSchema
from .protocol import InvalidPayload
from .transports.base import Unreachable
from .transports.revocation import REASON as REVOKED

_log = logging.getLogger(__name__)

#: A silo that cannot be reached for so many seconds counts as lost; `reconnect_timeout` where silos keep a connection.
_SEND_SECONDS = 10.0
#: Least seconds that the server waits at the end for the silos to disconnect.
_FINISH_SECONDS = 15.0
#: Most messages that are handled between two rounds. A silo that sends without end must not stop the run.
_MAX_HANDLED = 1000
#: A silo that sends wrong terms, is corrected and started again, needs longer: it imports FedML first.
_MIN_START_SECONDS = 2.0
#: Least seconds between two answers to the hellos of a silo.
_ANSWER_INTERVAL = 0.5
#: A silo that is restarted more often in a round is excluded from it.
_MAX_RESTARTS = 3


class RoundState:
    """The clients of one round, and what has been received from them.

    Attributes:
        index: the round; -1 before the first.
        clients: the selected clients.
        is_retry: whether these clients replace others of the same round.
        pending: the payload of each client that has not replied, as it is sent.
        lost: the payload of each client that was lost before it replied.
        replies: by client.
        unreached: clients to which the task could not be sent.
        restarts: how often each client was restarted before it replied.
    """

    def __init__(self, tasks: RoundTasks | None = None, payloads: Mapping[int, Any] | None = None) -> None:
        self.index = -1 if tasks is None else tasks.round
        self.clients: Sequence[int] = [] if tasks is None else tasks.clients
        self.is_retry = tasks is not None and tasks.is_retry
        self.pending: dict[int, Any] = dict(payloads or {})
        self.lost: dict[int, Any] = {}
        self.replies: dict[int, Reply] = {}
        self.unreached: set[int] = set()
        self.restarts: Counter[int] = Counter()

    @property
    def num_updates(self) -> int:
        """How many well-formed updates have been received."""
        return sum(isinstance(reply, ClientUpdate) for reply in self.replies.values())

    def record_reply(self, reply: Reply) -> None:
        """A client's update, or why there is none."""
        self.replies[reply.client] = reply
        self.pending.pop(reply.client, None)
        self.lost.pop(reply.client, None)

    def awaits(self, client: int) -> bool:
        """Whether an update of the client can be used: it was selected and has not replied."""
        return client in self.pending or client in self.lost

    def mark_lost(self, connected: Set[int]) -> None:
        """Do not wait for clients that are not connected."""
        for client in [client for client in self.pending if client not in connected]:
            self.lost[client] = self.pending.pop(client)

    def await_again(self, client: int) -> None:
        """A lost client is connected again."""
        self.pending[client] = self.lost.pop(client)
        self.unreached.discard(client)

    def close(self, send_timeout: float, silo_timeout: float) -> list[int]:
        """End the round: record a failure for each client without a reply.

        Returns:
            The clients that were connected and did not reply in time.
        """
        late = sorted(self.pending)
        for client in self.clients:
            if client in self.replies:
                continue
            if client in self.unreached:
                reason = f"it could not be reached for {send_timeout:g} s"
            elif client in self.pending:
                reason = f"it did not reply within {silo_timeout:g} s (comm_args.silo_timeout)"
            else:
                reason = "it was lost before it replied"
            self.record_reply(ClientFailure(client, reason))
        return late


class SiloServer(Party, Backend):
    """Rank 0. Its inputs are bound to its aggregator and are not part of any message."""

    def __init__(
        self,
        args: Any,
        device: torch.device,
        dataset: Any,
        aggregator: AlgorithmAggregator,
        options: RunOptions | None = None,
    ) -> None:
        settings = aggregator.server.settings
        check_role(args)
        weights = aggregator.get_model_params()
        payload_bytes = aggregator.server.algorithm.max_payload_bytes(weights)
        super().__init__(args, settings, PayloadSchema(weights, payload_bytes), _send_timeout(args, settings))
        try:
            # After the port is open, so that a run that cannot start leaves no run directory behind.
            self.session = Session(args, device, dataset, aggregator, options)
            self.run_dir: Path | None = self.session.directory.path
        except BaseException:
            self.transport.close()
            raise
        self.membership = Membership(self.transport.peers)
        # Logs and messages number the silos from 1.
        self.session.status.update(
            client_names={client: f"silo {client + 1}" for client in range(len(self.transport.peers))}
        )
        self.handshake = Handshake.create(aggregator.get_model_params(), self.session.dataset, settings.privacy)
        self.handlers = {protocol.STATUS: self._on_status, protocol.UPDATE: self._on_update}
        self._faults: Counter[int] = Counter()
        #: The last rejected incarnation of each client with its time.
        self._rejected: dict[int, tuple[str, float]] = {}
        #: The clients that know why they are rejected, or that the run has ended.
        self._informed: set[int] = set()
        #: Why a client is not selected again.
        self._exclusions: dict[int, str] = {}
        self._answered: dict[int, float] = {}
        #: The clients whose broken connection was logged.
        self._disconnected: set[int] = set()
        self._round = RoundState()
        self._heartbeat = Heartbeat(self._send_heartbeats, self.silo_settings.silo_timeout)

    def run(self) -> None:
        """Run all rounds; then tell the silos how the run has ended."""
        with self.audit_messages(self.session.directory.path):
            self._run()

    def _run(self) -> None:
        reason = "it failed"
        try:
            self._heartbeat.start()
            needs_clients = self.session.run.needs_clients
            if needs_clients:
                self._wait_for_start()
            self.session.execute(self)
            reason = ""
            if not needs_clients:
                # It was resumed after the last round. Silos that wait for it are to learn that the run has ended.
                self._wait_for_silos(_FINISH_SECONDS)
        except KeyboardInterrupt:
            reason = "it was interrupted"
            raise
        except RunStopped as error:
            reason = str(error)
            raise
        finally:
            self._finish_silos(reason)
            self._heartbeat.stop()
            self.transport.close(graceful=not reason and not self.membership.connected)

    def _drop_revoked(self) -> None:
        """Do not wait for silos whose certificates were revoked, and send them nothing."""
        for party in self.transport.drop_revoked():
            client = self.membership.client_of(party)
            if client is None:
                continue
            _log.warning("silo %d is disconnected: %s", client + 1, REVOKED)
            self.membership.mark_lost(client, self.membership.incarnation_of(client))
            if client in self._round.pending:
                self._round.record_reply(ClientFailure(client, REVOKED))

    def _report_clients(self) -> None:
        received = [client for client, reply in self._round.replies.items() if isinstance(reply, ClientUpdate)]
        connected = [client for client in self.membership.connected if not self._seconds_disconnected(client)]
        self.session.status.update(connected=sorted(connected), received=sorted(received))

    def _seconds_disconnected(self, client: int) -> float:
        return self.transport.seconds_disconnected(self.membership.id_of(client))

    def _drop_disconnected(self) -> None:
        """Do not wait for selected silos that have had no connection for `reconnect_timeout`."""
        timeout = self.address.send_timeout
        for client in self._round.pending:
            seconds = self._seconds_disconnected(client)
            if seconds == 0.0:
                self._disconnected.discard(client)
            elif client not in self._disconnected:
                self._disconnected.add(client)
                _log.warning("silo %d has disconnected; the server waits up to %g s for it", client + 1, timeout)
            if seconds > timeout:
                self._round.unreached.add(client)
                self.membership.mark_lost(client, self.membership.incarnation_of(client))

    def _wait_for_silos(self, seconds: float) -> None:
        """Wait until all silos have connected, or the time is over."""
        _log.info("the server waits for %d silos (up to %g s)", self.address.silos, seconds)
        deadline = time.monotonic() + seconds
        while len(self.membership.connected) < self.address.silos and time.monotonic() < deadline:
            self.handle(self.receive(seconds_until(deadline)))
            self._drop_revoked()
            self._report_clients()

    def _wait_for_start(self) -> None:
        """Wait for the silos before the first round; without some of them, the run starts all the same."""
        seconds = self.silo_settings.start_timeout
        self._wait_for_silos(seconds)
        missing = [index + 1 for index in range(self.address.silos) if index not in self.membership.connected]
        if missing:
            _log.warning("silos %s did not connect within %g s; the run starts without them", missing, seconds)

    def available_clients(self, settings: RunSettings) -> list[int]:
        """The connected silos."""
        self._handle_waiting_messages()
        self._drop_revoked()
        self._report_clients()
        return sorted(self.membership.connected)

    def train_clients(self, tasks: RoundTasks) -> list[Reply]:
        """Send the silos their tasks and wait for their updates."""
        self.transport.release_packed()
        try:
            self._round = RoundState(tasks, self._pack_payloads(tasks))
        except Unreachable as error:
            raise RunStopped(f"the weights of round {tasks.round} could not be sent: {error}") from error
        for client in tasks.clients:
            self._send_task(client)
        self._wait_for_updates()
        return [self._round.replies[client] for client in tasks.clients]

    def on_invalid_update(self, client: int, reason: str) -> None:
        """Count an update that the algorithm rejects as a fault of its silo."""
        self._record_fault(client, reason)

    def _pack_payloads(self, tasks: RoundTasks) -> dict[int, Any]:
        """The payload of each client as it is sent, packed once where the algorithm has no payload per client."""
        # Silos that read their own files do not know the feature scale; all others have computed the same one.
        reads_own_files = self.settings.data.own_data_file is not None
        scale = pack_scale(self.session.dataset.preprocessing.standardizer if reads_own_files else None)
        payloads = {client: tasks.payload(client) for client in tasks.clients}
        shared = None if all(payloads.values()) else self.transport.pack({**tasks.weights, **scale})
        return {
            client: self.transport.pack({**pack_task(tasks.weights, payload), **scale}) if payload else shared
            for client, payload in payloads.items()
        }

    def _send_task(self, client: int) -> None:
        state, party = self._round, self.membership.id_of(client)
        message = protocol.task_message(self.incarnation, party, client, state.index, state.pending[client])
        incarnation = self.membership.incarnation_of(client)

        def on_sent(is_sent: bool) -> None:
            if not is_sent:
                state.unreached.add(client)
                self.membership.mark_lost(client, incarnation)
                _log.warning("silo %d could not be reached for %g s", client + 1, self.address.send_timeout)

        if not self.outbox.post(message, on_sent):
            on_sent(False)

    def _wait_for_updates(self) -> None:
        """Wait until every selected silo has replied or is lost, or the time is over.

        If there are too few updates, lost silos have the rest of the time to connect again.
        """
        deadline, state = time.monotonic() + self.silo_settings.silo_timeout, self._round
        while time.monotonic() < deadline and (state.pending or self._needs_lost_silos()):
            self.handle(self.receive(seconds_until(deadline, 0.5)))
            self._drop_revoked()
            self._drop_disconnected()
            connected = self.membership.connected
            state.mark_lost(connected)
            self._report_clients()
            if not state.pending and self._needs_lost_silos():
                for client in sorted(connected & state.lost.keys()):
                    state.await_again(client)
                    self._repeat_task(client)
        for client in state.close(self.address.send_timeout, self.silo_settings.silo_timeout):
            self.membership.mark_lost(client, self.membership.incarnation_of(client))
        for reply in state.replies.values():
            if isinstance(reply, ClientFailure):
                _log.warning("round %d has no update of silo %d: %s", state.index, reply.client + 1, reply.reason)

    def _needs_lost_silos(self) -> bool:
        """Whether there are too few updates and a lost silo may connect again. A retry does not wait for lost silos."""
        if not self.transport.supports_rejoin or self._round.is_retry:
            return False
        reachable = {*self.membership.lost, *self.membership.connected}
        return bool(self._round.lost.keys() & reachable) and self._round.num_updates < self.settings.train.min_clients

    def _repeat_task(self, client: int) -> None:
        # The silo may have sent an update that has not arrived. The next one is a second copy for the privacy account.
        self.session.run.begin_round([client])
        self._send_task(client)

    def _on_update(self, message: Message) -> None:
        client = self.membership.client_of(protocol.get_sender(message))
        if client is None or client in self._exclusions:
            return
        if self.membership.has_disconnected(client, protocol.get_incarnation(message)):
            return
        try:
            # An update of an earlier round shows only that its silo is alive.
            if protocol.get_round(message) == self._round.index and self._round.awaits(client):
                self._round.record_reply(self._read_update(client, message))
        except InvalidPayload as error:
            self._record_fault(client, str(error))
        else:
            self.membership.record_message(client, protocol.get_incarnation(message))

    def _read_update(self, client: int, message: Message) -> ClientUpdate:
        samples, received = protocol.get_num_samples(message), protocol.get_weights(message)
        self.schema.validate(received)
        try:
            return unpack_update(client, samples, received)
        except (ValueError, TypeError, ArithmeticError, LookupError, RuntimeError) as error:
            # A hostile payload may have passed the schema.
            raise InvalidPayload(f"it cannot be read ({type(error).__name__})") from error

    def _record_fault(self, client: int, reason: str) -> None:
        """Exclude the silo from this round, and from the run after `max_faults` faults."""
        self._faults[client] += 1
        _log.warning("silo %d has sent an invalid message: %s", client + 1, reason)
        if client in self._round.pending:
            self._round.record_reply(ClientFailure(client, f"its message is invalid: {reason}"))
        if self._faults[client] == self.silo_settings.max_faults:
            self._exclusions[client] = (
                f"silo {client + 1} has sent {self._faults[client]} invalid messages (comm_args.max_faults) and is not "
                f"selected again in this run of the server; the last: {reason}"
            )
            _log.warning("%s", self._exclusions[client])
            self.membership.exclude(client)
            self.outbox.post(self._finish_message(client, self._exclusions[client]))

    def _on_status(self, message: Message) -> None:
        client = self.membership.client_of(protocol.get_sender(message))
        if client is None:
            return
        status, handshake = protocol.get_status(message)
        incarnation = protocol.get_incarnation(message)
        if status == protocol.FINISHED:
            self.membership.mark_disconnected(client, incarnation)
            return
        if client in self._exclusions:
            self._reject(client, incarnation, self._exclusions[client])
            return
        differences = self.handshake.find_differences(handshake, client + 1)
        if status == protocol.CHECK:
            # `mrtf preflight` on a silo: it does not take part.
            self.transport.send_nowait(
                protocol.report_message(self.incarnation, self.membership.id_of(client), differences, message)
            )
            return
        if differences:
            self._reject(client, incarnation, "; ".join(differences.values()), is_rejected=True)
            return
        is_new = self.membership.record_message(client, incarnation)
        if is_new:
            self._compare_platforms(client, handshake, protocol.get_time(message))
        self._answer(client)
        if is_new and client in self._round.pending:
            # It was restarted during the round and has lost its task.
            self._round.restarts[client] += 1
            if self._round.restarts[client] <= _MAX_RESTARTS:
                self._repeat_task(client)
            else:
                self._round.record_reply(ClientFailure(client, f"it was restarted {_MAX_RESTARTS + 1} times"))

    def _compare_platforms(self, client: int, handshake: Any, sent: float | None) -> None:
        """Report what does not prevent a silo from taking part: another PyTorch, a wrong clock."""
        if handshake.get("torch") != self.handshake.torch:
            _log.warning(
                "silo %d has PyTorch %s and the server %s: results agree with those of one process up to rounding",
                client + 1,
                ascii(str(handshake.get("torch"))[:40]),
                self.handshake.torch,
            )
        # A message may have waited while the server was refining, so a slow clock is reported at the start only.
        difference = 0.0 if sent is None else sent - time.time()
        if difference > MAX_CLOCK_DIFFERENCE or (difference < -MAX_CLOCK_DIFFERENCE and self._round.index < 0):
            _log.warning(
                "the clock of silo %d differs from the server's by %.0f s; correct the one that is wrong (NTP), or the "
                "times in logs and certificates cannot be compared",
                client + 1,
                difference,
            )

    def _answer(self, client: int) -> None:
        """Tell a silo that the server is alive."""
        now = time.monotonic()
        if now > self._answered.get(client, 0.0) + _ANSWER_INTERVAL:
            self._answered[client] = now
            self.transport.send_nowait(protocol.heartbeat_message(self.incarnation, self.membership.id_of(client)))

    def _reject(self, client: int, incarnation: str, reason: str, is_rejected: bool = False) -> None:
        """Tell a silo why it cannot take part. Several processes within the time that one needs to start are faults."""
        rejected, last = self._rejected.get(client, ("", -_MIN_START_SECONDS))
        if rejected != incarnation:
            now = time.monotonic()
            self._rejected[client] = incarnation, now
            self._informed.discard(client)
            if client not in self._exclusions:
                _log.warning("silo %d is rejected: %s", client + 1, reason)
                if now < last + _MIN_START_SECONDS:
                    self._record_fault(client, reason)
        # Once per process: a second message could reach the process that replaces it.
        if client in self._informed or not self.outbox.is_idle(self.membership.id_of(client)):
            return

        def on_sent(is_sent: bool) -> None:
            if is_sent and self._rejected[client][0] == incarnation:
                self._informed.add(client)

        self.outbox.post(self._finish_message(client, reason, is_rejected), on_sent)

    def _finish_message(self, client: int, reason: str, is_rejected: bool = False) -> Message:
        return protocol.finish_message(self.incarnation, self.membership.id_of(client), reason, is_rejected)

    def _handle_waiting_messages(self) -> None:
        for _ in range(_MAX_HANDLED):
            message = self.receive(0.0)
            if message is None:
                return
            self.handle(message)

    def _send_heartbeats(self) -> None:
        for client in self.membership.heartbeat_targets(self.transport.supports_rejoin):
            self.transport.send_nowait(protocol.heartbeat_message(self.incarnation, self.membership.id_of(client)))

    def _finish_silos(self, reason: str) -> None:
        """Tell all silos that the run has ended, and wait until they have disconnected."""
        # Some silos may have connected since the last message was handled.
        self._handle_waiting_messages()
        # A silo that is disconnected for the moment is to learn that the run has succeeded.
        seconds = _FINISH_SECONDS if reason else max(_FINISH_SECONDS, self.address.send_timeout)
        deadline = time.monotonic() + min(seconds, self.silo_settings.silo_timeout)
        for client in self.membership.lost:
            # It may be alive; nobody waits for it.
            self.transport.send_nowait(self._finish_message(client, reason))
        for client in sorted(self.membership.connected):
            self._finish_silo(client, reason)
        while self.membership.connected and time.monotonic() < deadline:
            self.handle(self.receive(seconds_until(deadline)))
            for client in self._informed & self.membership.connected:
                if self._seconds_disconnected(client):
                    self.membership.mark_lost(client, self.membership.incarnation_of(client))

    def _finish_silo(self, client: int, reason: str) -> None:
        incarnation = self.membership.incarnation_of(client)
        self._informed.discard(client)

        def on_sent(is_sent: bool) -> None:
            if is_sent:
                self._informed.add(client)
            else:
                self.membership.mark_lost(client, incarnation)

        if not self.outbox.post(self._finish_message(client, reason), on_sent):
            on_sent(False)


def _send_timeout(args: Any, settings: RunSettings) -> float:
    if args.backend == "GRPC" and settings.silo.connection == "outbound":
        return min(settings.silo.reconnect_timeout, settings.silo.silo_timeout)
    return _SEND_SECONDS
