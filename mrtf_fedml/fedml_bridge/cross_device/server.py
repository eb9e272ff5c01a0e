"""The server of a federation of devices: it invites, chooses, hands out, waits no longer than it must, and reads.

FedML's own (fedml.cross_device.server_mnn) waits for every device that it knows, in every round and for ever, reads
their files with MNN in its own process, and averages by itself. This one speaks the same protocol to the same devices.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from fedml.core.distributed.fedml_comm_manager import FedMLCommManager

from ...algorithms import ClientUpdate, NoReply
from ...algorithms.sampling import chosen_among
from ...errors import RunStopped
from ...rounds.round import Handout, Reply
from ..offline import wants_platform
from ..server_side import AlgorithmAggregator
from ..session import Session
from . import protocol
from .exchange import Exchange, UnusableModel
from .front_desk import FrontDesk
from .link import DeviceLink

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
#: Seconds that a device which the broker has lost in a round has to come back.
_GRACE_SECONDS = 10.0
#: Seconds that the server waits for the devices' last words; their answers are all there already.
_FAREWELL_SECONDS = 15.0
#: No phone holds more samples.
_MOST_SAMPLES = 10**9


class DeviceServer:
    """What FedMLRunner runs. The server's inputs are bound to its aggregator and leave this process in no message.

    Args:
        args: FedML's arguments.
        device: where the server computes.
        dataset: FedML's eight, with the server's inputs as devices give theirs to the network.
        aggregator: of the algorithm; its model is the exchange's twin.
        exchange: between that twin and .mnn files.
        ids: of the devices, by client.
        start: what a start message tells them of the training, and of the data.
    """

    def __init__(
        self,
        args: Any,
        device: torch.device,
        dataset: Any,
        aggregator: AlgorithmAggregator,
        exchange: Exchange,
        ids: list[int],
        start: tuple[dict[str, Any], dict[str, Any]],
    ) -> None:
        self.settings = aggregator.server.settings
        self.exchange = exchange
        self._timeouts = self.settings.silo
        server = int(getattr(args, "server_id", 0) or 0)
        topics = protocol.Topics(str(args.run_id), str(server))
        self.link = DeviceLink(*_addresses(args), topics, ids, self._timeouts.start_timeout)
        try:
            # After the connection is there, so that a run that cannot start leaves no folder behind.
            self.session = Session(args, device, dataset, aggregator)
        except BaseException:
            self.link.close()
            raise
        self.desk = FrontDesk(self.link, ids, server, *start)
        self.desk.on_online = self._on_online
        self.desk.on_answer = self._on_answer
        self.attendance = self.desk.attendance
        #: The devices that have got a model since they came online.
        self._begun: set[int] = set()
        self._round, self._key = -1, ""
        self._awaited: set[int] = set()
        self._replies: dict[int, Reply] = {}

    def run(self) -> None:
        """All rounds; the devices are told that it is over, however it ends."""
        try:
            if self.session.run.rounds_left:
                self._gather(self.settings.train.client_num_in_total, "came")
            self.session.play(self._ask, self._choose)
        finally:
            self._awaited = set()
            self.desk.say_goodbye(min(_FAREWELL_SECONDS, self._timeouts.silo_timeout))
            self.link.close()

    def _gather(self, enough: int, what: str) -> None:
        """Wait until so many devices are here; when the time is over, for as many as a round must have."""
        seconds, least = self._timeouts.start_timeout, self._timeouts.min_silos
        deadline = time.monotonic() + seconds
        while len(self.attendance.here) < enough and time.monotonic() < deadline:
            self.desk.tend(_LOOK_SECONDS)
        here = len(self.attendance.here)
        if here < least:
            raise RunStopped(
                f"not enough devices {what} within {seconds:g} s (comm_args.start_timeout): {here} are there and "
                f"comm_args.min_silos is {least}; go on with `mrtf run --resume {self.session.store.path}`"
            )
        if here < enough:
            _log.warning("%d of %d devices came within %g s; the run starts with them", here, enough, seconds)

    def _choose(self, round_index: int, asked: Sequence[int]) -> list[int]:
        """The clients of a round, among those that are there."""
        while self.desk.tend(0.0):
            pass
        self._gather(self._timeouts.min_silos, "are left")
        here, per_round = self.attendance.here, self.settings.train.client_num_per_round
        return chosen_among(here, asked, round_index, per_round, self.settings.common.random_seed)

    def _ask(self, handout: Handout) -> list[Reply]:
        self._round, self._replies = handout.round, {}
        self._key = self.link.lay_out(handout.round, self.exchange.to_file(handout.weights))
        self._awaited = set(handout.clients)
        for client in handout.clients:
            self._hand_out(client)
        self._collect(handout)
        return [self._replies[client] for client in handout.clients]

    def _hand_out(self, client: int) -> None:
        kind = protocol.SYNC if client in self._begun else protocol.INIT
        self._begun.add(client)
        self.desk.hand_out(client, kind, self._round, self._key)

    def _collect(self, handout: Handout) -> None:
        """Until every chosen device has answered or is lost, or the time is over."""
        seconds = self._timeouts.silo_timeout
        deadline = time.monotonic() + seconds
        while self._awaited and time.monotonic() < deadline:
            self.desk.tend(min(_LOOK_SECONDS, max(0.01, deadline - time.monotonic())))
            for client in sorted(self._awaited):
                if self.attendance.seconds_away(client) > _GRACE_SECONDS:
                    self._leave_out(client, "it was lost before it answered")
        for client in sorted(self._awaited):
            self.attendance.late(client)
            self._leave_out(client, f"it gave no answer within {seconds:g} s (comm_args.silo_timeout)")
        answered = sum(isinstance(reply, ClientUpdate) for reply in self._replies.values())
        if answered < self._timeouts.min_silos and not handout.again:
            raise RunStopped(
                f"in round {handout.round} {answered} of {len(handout.clients)} devices gave an answer that can be "
                f"used, fewer than comm_args.min_silos ({self._timeouts.min_silos}); the rounds before are saved: go "
                f"on with `mrtf run --resume {self.session.store.path}`"
            )

    def _leave_out(self, client: int, reason: str) -> None:
        _log.warning("device %d is left out of round %d: %s", self.attendance.id_of(client), self._round, reason)
        self._replies[client] = NoReply(client, reason)
        self._awaited.discard(client)

    def _on_online(self, client: int) -> None:
        self._begun.discard(client)
        if client in self._awaited:
            # It was started anew in the middle of the round, and has lost what it was given.
            self._hand_out(client)

    def _on_answer(self, client: int, message: dict[str, Any]) -> None:
        round_index, key = protocol.whole(message, protocol.ROUND), protocol.text(message, protocol.MODEL)
        device = self.attendance.id_of(client)
        # Anyone on the broker can write this: who has not come, or was lost, comes by its own word alone. Taken for
        # here, it would be given a model before it listens, and not again when it does.
        self.attendance.woke(client)
        if round_index != self._round or client not in self._awaited:
            # It comes too late; it only shows that its device lives.
            self.link.drop(device, key)
            return
        try:
            samples = protocol.whole(message, protocol.SAMPLES)
            content = self.link.fetch(device, key, self.exchange.longest)
            if not 0 < samples <= _MOST_SAMPLES:
                raise protocol.UnreadableMessage(f"it says that it has trained on {samples} samples")
            # The app tells no loss.
            self._replies[client] = ClientUpdate(client, samples, self.exchange.to_weights(content), loss=None)
            self._awaited.discard(client)
            self.attendance.heard(client)
        except (protocol.UnreadableMessage, UnusableModel) as error:
            self._leave_out(client, str(error))


def _addresses(args: Any) -> tuple[Any, Any]:
    """FedML's configurations of broker and bucket: the user's own, or those of FedML's platform where it is wanted."""
    if wants_platform(args):
        broker, bucket = FedMLCommManager.get_training_mqtt_s3_config(SimpleNamespace(args=args))
        return broker, bucket
    return getattr(args, "customized_training_mqtt_config", None), getattr(args, "customized_training_s3_config", None)
