"""GRPC: every party listens on a port of its own and calls the others on theirs.

FedML's service and its table of addresses, with certificates where they are named, a bounded send, messages no
longer than the model makes them (GRPC itself allows 2 GB), and read instead of unpickled.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from fedml.core.distributed.communication.constants import CommunicationConstants
from fedml.core.distributed.communication.grpc.grpc_comm_manager import GRPCCommManager, GRPCMapping
from fedml.core.distributed.communication.grpc.grpc_comm_manager_pb2 import CommRequest, CommResponse
from fedml.core.distributed.communication.grpc.grpc_comm_manager_pb2_grpc import (
    add_gRPCCommManagerServicer_to_server,
    gRPCCommManagerStub,
)
from fedml.core.distributed.communication.grpc.grpc_server import GRPCCOMMServicer
from fedml.core.distributed.communication.message import Message
from torch import Tensor

from ....errors import UserError
from ....settings import SiloSettings
from .backend import MOST_UNREAD, PartyAddress, SiloBackend, Unreachable
from .codec import UnreadableMessage, decode, encode, encode_weights
from .identity import certified_names, check_own_name, name_of
from .tls import channel_credentials, server_credentials

_log = logging.getLogger(__name__)

_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    # A second process on the same port is an error, not a rival for the messages.
    ("grpc.so_reuseport", 0),
    # A party that comes back is found within a second, not within two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A link that is down is found by these, also while a write is blocked, which knows no deadline of its own.
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 3000),
    ("grpc.http2.max_ping_strikes", 0),
]
_PING_SECONDS = 5.0
_CLOSE_SECONDS = 5.0


class _Servicer(GRPCCOMMServicer):
    """FedML's door: with certificates, nobody comes in by another's name."""

    certified = False
    #: Bytes that may wait to be read.
    most_bytes = 2**31

    def sendMessage(self, request: CommRequest, context: grpc.ServicerContext) -> CommResponse:
        """Take the message in, with who has called."""
        caller = int(request.client_id)
        if self.certified:
            names = certified_names(context.auth_context())
            if name_of(caller) not in names:
                reason = f"the certificate is of {', '.join(sorted(names))[:100]}, not of {name_of(caller)!r}"
                _log.warning("a message was refused: %s", reason)
                context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
        with self.message_q.mutex:
            unread = [len(content) for _, content in filter(None, self.message_q.queue)]
        if len(unread) >= MOST_UNREAD or sum(unread) > self.most_bytes:
            # Who means it seriously tries again.
            context.abort(grpc.StatusCode.UNAVAILABLE, "too many messages wait to be read")
        self.message_q.put((caller, request.message))
        return CommResponse()


class GrpcBackend(SiloBackend):
    """One end of the federation over GRPC."""

    def __init__(self, args: Any, address: PartyAddress, settings: SiloSettings) -> None:
        super().__init__()
        self.patience = address.patience
        self.addresses = _addresses(getattr(args, "grpc_ipconfig_path", None), address.ranks)
        self._own_id = address.own_id
        self._credentials = channel_credentials(settings)
        self._channels: dict[int, grpc.Channel] = {}
        self._opening = threading.Lock()
        self._calls: set[grpc.Future] = set()
        own = self.addresses[address.own_id]
        check_own_name(settings, address.own_id)
        servicer = _Servicer(own.grpc_server_ip, own.grpc_server_port, len(address.ranks), address.rank)
        servicer.message_q, servicer.certified = self.arrived, self._credentials is not None
        servicer.most_bytes = (address.silos + 1) * address.longest
        taken_in = [*_OPTIONS, ("grpc.max_receive_message_length", min(address.longest, 2**31 - 1))]
        self._server = grpc.server(ThreadPoolExecutor(max_workers=max(4, len(address.ranks))), options=taken_in)
        add_gRPCCommManagerServicer_to_server(servicer, self._server)
        self._listen(f"{own.grpc_server_ip}:{own.grpc_server_port}", settings)

    def _listen(self, address: str, settings: SiloSettings) -> None:
        credentials = server_credentials(settings)
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            port = 0
        if port == 0:
            raise UserError(
                f"cannot listen on {address}: the port is taken or the address is not this machine's; change it in "
                "comm_args.grpc_ipconfig_path"
            )
        self._server.start()

    def stop_receive_message(self) -> None:
        """Close the port and the channels."""
        self._server.stop(grace=1.0).wait(timeout=5)
        super().stop_receive_message()
        # GRPC waits here for every call, and one that Ctrl-C has cut off at its start never ends.
        closing = threading.Thread(target=self._close_channels, name="silo closing", daemon=True)
        closing.start()
        closing.join(timeout=_CLOSE_SECONDS)

    def _close_channels(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def _pack(self, weights: Mapping[str, Tensor]) -> bytes:
        """One block of bytes for all receivers."""
        return encode_weights(weights)

    def read(self, raw: tuple[int, bytes]) -> Message:
        """The message behind the bytes; it must be of whom the call was."""
        caller, content = raw
        message = decode(content)
        if self._credentials is not None and str(message.get_sender_id()) != str(caller):
            raise UnreadableMessage(f"{name_of(caller)} speaks in the name of {str(message.get_sender_id())[:20]!r}")
        return message

    def _send(self, msg: Message) -> None:
        """Call the receiver; one that does not listen yet is called again, for `patience` seconds in all."""
        request = self._request(msg)
        stub = self._stub(int(msg.get_receiver_id()))
        deadline = time.monotonic() + self.patience
        while True:
            left = max(0.1, deadline - time.monotonic())
            call = stub.sendMessage.future(request, timeout=left)
            try:
                call.result(timeout=left + 1.0)
                return
            except grpc.FutureTimeoutError as error:
                # A write that the network has blocked may outlive the deadline of its call.
                call.cancel()
                target = self._target(int(msg.get_receiver_id()))
                raise Unreachable(f"{target} (a write was blocked for {self.patience:g} s)") from error
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() + 0.2 > deadline:
                    target = self._target(int(msg.get_receiver_id()))
                    raise Unreachable(f"{target} ({error.code().name}: {error.details()})") from error
            time.sleep(0.2)

    def _ping(self, msg: Message) -> None:
        """Call without waiting for the answer."""
        stub = self._stub(int(msg.get_receiver_id()))
        call = stub.sendMessage.future(self._request(msg), timeout=_PING_SECONDS)
        # GRPC cancels a call that nobody holds.
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    def _request(self, msg: Message) -> CommRequest:
        return CommRequest(client_id=self._own_id, message=encode(msg.get_params()))

    def _stub(self, receiver: int) -> gRPCCommManagerStub:
        with self._opening:
            if receiver not in self._channels:
                target = self._target(receiver)
                if self._credentials is None:
                    self._channels[receiver] = grpc.insecure_channel(target, options=_OPTIONS)
                else:
                    self._channels[receiver] = grpc.secure_channel(target, self._credentials, options=_OPTIONS)
            return gRPCCommManagerStub(self._channels[receiver])

    def _target(self, receiver: int) -> str:
        mapping = self.addresses[receiver]
        return f"{mapping.ingress_ip or mapping.grpc_server_ip}:{mapping.grpc_server_port}"


def _addresses(file: str | None, ranks: Mapping[int, int]) -> dict[int, GRPCMapping]:
    """FedML's table `eid,rank,grpc_server_ip,grpc_server_port[,ingress_ip]`; without one, all are on this machine."""
    if not file:
        base = CommunicationConstants.GRPC_BASE_PORT
        return {party: GRPCMapping(party, rank, "127.0.0.1", base + rank, None) for party, rank in ranks.items()}
    if not Path(file).is_file():
        raise UserError(f"comm_args.grpc_ipconfig_path: there is no file {file!r}; write it or correct the path")
    # FedML's reader of the table, without the open port that its constructor makes.
    table = GRPCCommManager.__new__(GRPCCommManager)
    table.grpc_ipconfig_path, table.grpc_mappings = file, {}
    try:
        table._init_grpc_mappings()
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(
            f"{file!r}: the first line must be eid,rank,grpc_server_ip,grpc_server_port and each party has one line "
            f"({error}); correct it"
        ) from None
    for party in ranks:
        if party not in table.grpc_mappings:
            raise UserError(f"{file!r} has no line for eid {party}; give the server (0) and every silo one")
    return table.grpc_mappings
