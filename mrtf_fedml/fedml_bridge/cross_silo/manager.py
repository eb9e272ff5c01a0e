"""FedML's communication manager with an inbox: what arrives waits until the party has time for it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, ClassVar

from fedml.core.distributed.communication.message import Message
from fedml.core.distributed.fedml_comm_manager import FedMLCommManager

from ...errors import UserError, nearest
from ...settings import RunSettings
from .expected_weights import ExpectedWeights
from .inbox import Inbox
from .protocol import READY, SERVER, incarnation_of, new_incarnation, number_of
from .replays import Replays
from .transports.backend import PartyAddress, SiloBackend, Unreachable

_log = logging.getLogger(__name__)

BACKENDS = ("GRPC", "TRPC", "MPI", "MQTT_S3")


class SiloManager(FedMLCommManager):
    """One party of the federation: the server or a silo."""

    #: Seconds for which a send is tried again; None is `silo_timeout`.
    patience: ClassVar[float | None] = None

    def __init__(self, args: Any, settings: RunSettings, expected: ExpectedWeights) -> None:
        self.settings = settings
        self.silo_settings = settings.silo
        self.incarnation = new_incarnation()
        self.expected = expected
        self.address = replace(_address(args, settings, self.patience), longest=expected.longest)
        #: Tells liveness of everything that arrives.
        self.on_arrival: Callable[[Message], None] | None = None
        self._heard = Replays()
        self._inbox = Inbox(self.address.silos + 1)
        super().__init__(args, args.comm, self.address.rank, self.address.silos, args.backend)
        self.register_message_receive_handlers()

    def _init_manager(self) -> None:
        self.com_manager: SiloBackend = self._backend()
        self.com_manager.add_observer(self)
        self.com_manager.handle_receive_message()

    def _backend(self) -> SiloBackend:
        # Each is imported where it is used: GRPC and MPI are optional packages.
        if self.backend == "GRPC":
            if find_spec("grpc") is None:
                raise UserError("backend GRPC needs the package grpcio; pip install grpcio")
            from .transports.grpc import GrpcBackend

            return GrpcBackend(self.args, self.address, self.silo_settings)
        if self.backend == "TRPC":
            from .transports.trpc import TrpcBackend

            return TrpcBackend(self.args, self.address, self.silo_settings)
        if self.backend == "MPI":
            from .transports.mpi import MpiBackend

            return MpiBackend(self.args, self.address, self.silo_settings)
        from .transports.mqtt import MqttBackend

        return MqttBackend(self.args, self.address, self.silo_settings, *self.get_training_mqtt_s3_config())

    def receive_message(self, msg_type: Any, msg_params: Message) -> None:
        """Put the message in the inbox. Called from the backend's thread."""
        if msg_type == READY:
            return
        number, speaker = number_of(msg_params), incarnation_of(msg_params)
        if number < 0 or not speaker or not self._heard.is_new(speaker, number):
            _log.info("rank %d: a message without a number, or one that came before, was dropped", self.rank)
            return
        if self.on_arrival is not None:
            self.on_arrival(msg_params)
        if not self._inbox.put(msg_params):
            _log.warning("rank %d: a message was dropped, since too many wait already", self.rank)

    def next_message(self, seconds: float) -> Message | None:
        """What arrived first, or None after so many seconds."""
        return self._inbox.next(seconds)

    def handle(self, message: Message | None) -> None:
        """Do what the message asks for; one of a type that this party does not know is none of its business."""
        kind = None if message is None else message.get_type()
        handler = self.message_handler_dict.get(kind) if isinstance(kind, int | str) else None
        if handler is not None:
            handler(message)

    def tries_to_send(self, message: Message) -> bool:
        """Send; False where the receiver cannot be reached."""
        try:
            self.com_manager.send_message(message)
        except Unreachable as error:
            _log.info("rank %d: no message to %s: %s", self.rank, message.get_receiver_id(), error)
            return False
        return True

    def close(self) -> None:
        """Leave the federation."""
        self.com_manager.stop_receive_message()


def seconds_until(moment: float, at_most: float = 1.0) -> float:
    """How long to wait for the next message, so that no clock is looked at too late."""
    return min(at_most, max(0.0, moment - time.monotonic()))


def _address(args: Any, settings: RunSettings, patience: float | None) -> PartyAddress:
    if args.backend not in BACKENDS:
        raise UserError(
            f"comm_args.backend is {args.backend!r}, which does not reach across silos; "
            f"{nearest(str(args.backend), BACKENDS)}"
        )
    rank, silos = int(args.rank), settings.train.client_num_in_total
    if rank > silos:
        raise UserError(
            f"rank {rank} is no silo: train_args.client_num_in_total is {silos}, so the silos' ranks are 1 to {silos}"
        )
    ids = _silo_ids(args, rank, silos)
    ranks: Mapping[int, int] = {SERVER: 0, **ids}
    own_id = next(party for party, other in ranks.items() if other == rank)
    return PartyAddress(rank, own_id, ranks, silos, patience or settings.silo.silo_timeout)


def _silo_ids(args: Any, rank: int, silos: int) -> dict[int, int]:
    """The rank of each silo by its id: all silos for the server, itself for a silo.

    An id is the rank, unless FedML's platform has numbered the devices itself.
    """
    given = getattr(args, "client_id_list", None)
    named = json.loads(str(given).replace("'", '"')) if given not in (None, "None", "") else []
    if rank == 0:
        ids = named if len(named) == silos else range(1, silos + 1)
        return {int(party): number for number, party in enumerate(ids, start=1)}
    return {int(named[0]) if len(named) == 1 else rank: rank}
