"""What server and silos have in common: an address, a transport, and message handlers."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedml.core.distributed.communication.message import Message
from fedml.core.distributed.fedml_comm_manager import FedMLCommManager

from ....config import RunSettings
from ....errors import UserError, WriteError, suggest_name
from ....version import __version__
from .audit import AuditLog
from .payload_validation import PayloadSchema
from .protocol import SERVER, new_incarnation
from .transports.base import MessageRecord, Outbox, PartyAddress, Transport, Unreachable, run_in_thread

_log = logging.getLogger(__name__)

BACKENDS = ("GRPC", "TRPC", "MPI", "MQTT_S3")


class Party:
    """One party of the federation: the server or a silo, each a process of its own.

    Args:
        args: FedML's arguments.
        settings: of the run.
        schema: of the weights in messages.
        send_timeout: seconds for which a send is retried; None is `silo_timeout`.
        is_check: whether it only asks the server what differs (`mrtf preflight`).
    """

    def __init__(
        self,
        args: Any,
        settings: RunSettings,
        schema: PayloadSchema,
        send_timeout: float | None = None,
        is_check: bool = False,
    ) -> None:
        self.args = args
        self.settings = settings
        self.silo_settings = settings.silo
        self.incarnation = new_incarnation()
        self.schema = schema
        self.address = _make_address(args, settings, send_timeout, schema.max_message_bytes, is_check)
        self.rank = self.address.rank
        #: What to do with a message, by its type.
        self.handlers: dict[Any, Callable[[Message], None]] = {}
        self.transport = _make_transport(args, self.address, settings)
        self.outbox = Outbox(self.try_send)

    def audit_messages(self, folder: Path) -> AbstractContextManager[None]:
        """Log every message that is sent or received in the block to audit.jsonl in this folder."""
        return audit_messages(self.transport.observers, folder, self.address.own_id)

    def receive(self, seconds: float) -> Message | None:
        """The next message, or None if none arrives in `seconds`."""
        return self.transport.receive(seconds)

    def handle(self, message: Message | None) -> None:
        """Handle a message; one of an unknown type is ignored."""
        kind = None if message is None else message.get_type()
        handler = self.handlers.get(kind) if isinstance(kind, int | str) else None
        if message is not None and handler is not None:
            handler(message)

    def try_send(self, message: Message) -> bool:
        """Send a message; False if the receiver cannot be reached."""
        try:
            self.transport.send(message)
        except (Unreachable, WriteError) as error:
            _log.info("rank %d could not send to %s: %s", self.rank, message.get_receiver_id(), error)
            return False
        return True


@contextmanager
def audit_messages(
    observers: list[Callable[[MessageRecord], None]], folder: Path, party: int = SERVER
) -> Iterator[None]:
    """Log every message that these observers see in the block to audit.jsonl in this folder."""
    log = AuditLog(folder, party, __version__)
    # Outside of the main thread, since Ctrl-C could leave the log's lock held.
    observers.append(lambda message: run_in_thread(lambda: log.record(message)))
    reason = ""
    try:
        yield
    except BaseException as error:
        reason = str(error) or type(error).__name__
        raise
    finally:
        observers.clear()
        log.close(reason)


def is_silo(args: Any) -> bool:
    """Whether this process is a silo: it has labelled samples, and not the server's inputs."""
    return args.training_type == "cross_silo" and args.role == "client"


def seconds_until(deadline: float, at_most: float = 1.0) -> float:
    """Seconds to wait for the next message, so that no deadline is missed."""
    return min(at_most, max(0.0, deadline - time.monotonic()))


def check_role(args: Any) -> None:
    """Refuse a role that does not fit the rank, and scenarios that are not supported."""
    rank, role, scenario = int(args.rank), args.role, getattr(args, "scenario", "horizontal")
    if scenario != "horizontal":
        raise UserError(f"common_args.scenario is {scenario!r}; across silos only 'horizontal' is supported")
    if role not in ("server", "client"):
        raise UserError(f"role is {role!r}; it is server or client (--role)")
    if (rank == 0) != (role == "server"):
        raise UserError(f"role {role!r} does not fit rank {rank}; the server has rank 0, the silos 1, 2, ... (--rank)")


def _make_address(
    args: Any, settings: RunSettings, send_timeout: float | None, max_message_bytes: int, is_check: bool
) -> PartyAddress:
    if args.backend not in BACKENDS:
        raise UserError(
            f"comm_args.backend is {args.backend!r}, which does not support silos; "
            f"{suggest_name(str(args.backend), BACKENDS)}"
        )
    rank, silos = int(args.rank), settings.train.client_num_in_total
    if rank > silos:
        raise UserError(
            f"rank {rank} is not a silo: with train_args.client_num_in_total {silos} the silos' ranks are 1 to {silos}"
        )
    ranks: Mapping[int, int] = {SERVER: 0, **_silo_ranks(args, rank, silos)}
    own_id = next(party for party, other in ranks.items() if other == rank)
    seconds = send_timeout or settings.silo.silo_timeout
    return PartyAddress(rank, own_id, ranks, silos, seconds, max_message_bytes, is_check)


def _silo_ranks(args: Any, rank: int, silos: int) -> dict[int, int]:
    """The rank of each silo by its id: all silos for the server, itself for a silo.

    An id is the rank, unless FedML's platform has assigned ids.
    """
    configured = getattr(args, "client_id_list", None)
    ids = json.loads(str(configured).replace("'", '"')) if configured not in (None, "None", "") else []
    if rank == 0:
        parties = ids if len(ids) == silos else range(1, silos + 1)
        return {int(party): number for number, party in enumerate(parties, start=1)}
    return {int(ids[0]) if len(ids) == 1 else rank: rank}


def _make_transport(args: Any, address: PartyAddress, settings: RunSettings) -> Transport:
    # Each module is imported only when it is used: GRPC and MPI need optional packages.
    if args.backend == "GRPC":
        if find_spec("grpc") is None:
            raise UserError("backend GRPC needs the package grpcio; pip install grpcio")
        if settings.silo.connection == "two_way":
            from .transports.grpc import GrpcTransport

            return GrpcTransport(args, address, settings.silo)
        from .transports.grpc_outbound import make_outbound_transport

        return make_outbound_transport(args, address, settings.silo)
    if args.backend == "TRPC":
        from .transports.trpc import TrpcTransport

        return TrpcTransport(args, address, settings.silo)
    if args.backend == "MPI":
        from .transports.mpi import MpiTransport

        return MpiTransport(args, address)
    from .transports.mqtt import MqttTransport

    broker, bucket = FedMLCommManager.get_training_mqtt_s3_config(SimpleNamespace(args=args))
    return MqttTransport(args, address, settings.silo, broker, bucket)
