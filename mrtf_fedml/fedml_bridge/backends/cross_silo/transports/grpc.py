"""GRPC with `connection: two_way`, as in FedML: every party listens on a port and calls the others on theirs.

FedML's service and its table of addresses, with optional certificates, bounded sends, a message size limit derived from
the model (gRPC itself allows 2 GB), and no unpickling.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from fedml.core.distributed.communication.constants import CommunicationConstants
from fedml.core.distributed.communication.grpc.grpc_comm_manager import GRPCCommManager, GRPCMapping
from fedml.core.distributed.communication.grpc.grpc_comm_manager_pb2 import CommRequest, CommResponse
from fedml.core.distributed.communication.grpc.grpc_comm_manager_pb2_grpc import (
    add_gRPCCommManagerServicer_to_server,
    gRPCCommManagerServicer,
    gRPCCommManagerStub,
)
from fedml.core.distributed.communication.message import Message
from torch import Tensor

from .....config import SiloSettings
from .....errors import UserError
from .base import PartyAddress, Transport, Unreachable
from .codec import UnreadableMessage, decode, encode, encode_weights
from .revocation import REASON as REVOKED
from .revocation import RevocationList, peer_digest
from .tls import channel_credentials, check_own_certificate, find_identity_mismatch, party_name, server_credentials

_log = logging.getLogger(__name__)

COMMON_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    # A second process on the same port must fail, not share the messages.
    ("grpc.so_reuseport", 0),
    # Reconnect to a restarted party within a second; the default is two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 3000),
    ("grpc.http2.max_ping_strikes", 0),
]
_OPTIONS = [
    *COMMON_OPTIONS,
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Keepalive detects a broken link also while a write is blocked, which has no deadline of its own.
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 5000),
]
_NOWAIT_SECONDS = 5.0
_CLOSE_SECONDS = 5.0


class _Servicer(gRPCCommManagerServicer):
    """FedML's service. With certificates, a caller must have the certificate of the sender it names."""

    def __init__(self, transport: GrpcTransport) -> None:
        self._transport = transport

    def sendMessage(self, request: CommRequest, context: grpc.ServicerContext) -> CommResponse:
        """Queue a message."""
        caller = int(request.client_id)
        reason = find_identity_mismatch(context.auth_context(), caller) if self._transport.uses_tls else None
        if reason is not None:
            _log.warning("a message was rejected: %s", reason)
            context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
        if not self._transport.record_certificate(caller, peer_digest(context.auth_context())):
            _log.warning("a message of %s was rejected: %s", party_name(caller), REVOKED)
            context.abort(grpc.StatusCode.PERMISSION_DENIED, REVOKED)
        if not self._transport.deliver(lambda: self._decode(caller, request.message)):
            # The sender retries.
            context.abort(grpc.StatusCode.UNAVAILABLE, "too many messages are waiting")
        return CommResponse()

    def _decode(self, caller: int, content: bytes) -> Message:
        message = decode(content)
        if self._transport.uses_tls and str(message.get_sender_id()) != str(caller):
            sender = str(message.get_sender_id())[:20]
            raise UnreadableMessage(f"{party_name(caller)} has sent it under the sender id {sender!r}")
        return message


class GrpcTransport(Transport):
    """A party's connection over gRPC."""

    def __init__(self, args: Any, address: PartyAddress, settings: SiloSettings) -> None:
        super().__init__(address)
        if settings.server_address is not None:
            raise UserError(
                "comm_args.server_address needs connection: outbound; with two_way give grpc_ipconfig_path instead"
            )
        self._addresses = read_addresses(getattr(args, "grpc_ipconfig_path", None), address.ranks)
        self._credentials = channel_credentials(settings)
        self._channels: dict[int, grpc.Channel] = {}
        self._channels_lock = threading.Lock()
        self._calls: set[grpc.Future] = set()
        self._revoked = RevocationList(settings.tls_revoked)
        #: The digest of each caller's certificate.
        self._digests: dict[int, str | None] = {}
        own = self._addresses[address.own_id]
        check_own_certificate(settings, address.own_id)
        options = [*_OPTIONS, ("grpc.max_receive_message_length", min(address.max_message_bytes, 2**31 - 1))]
        self._server = grpc.server(ThreadPoolExecutor(max_workers=max(4, len(address.ranks))), options=options)
        add_gRPCCommManagerServicer_to_server(_Servicer(self), self._server)
        listen(self._server, f"{own.grpc_server_ip}:{own.grpc_server_port}", settings)

    @property
    def uses_tls(self) -> bool:
        """Whether peers are authenticated by certificates."""
        return self._credentials is not None

    def record_certificate(self, caller: int, digest: str | None) -> bool:
        """Note the certificate of a caller; False if it is revoked."""
        if digest in self._revoked:
            return False
        self._digests[caller] = digest
        return True

    def drop_revoked(self) -> list[int]:
        """The callers whose certificates were revoked since their last message."""
        dropped = [party for party, digest in list(self._digests.items()) if digest in self._revoked]
        for party in dropped:
            del self._digests[party]
        return dropped

    def close(self, graceful: bool = False) -> None:
        """Close the port and the channels."""
        self._server.stop(grace=1.0).wait(timeout=5)
        # gRPC waits for every call here, and a call that Ctrl-C has interrupted at its start never ends.
        closing = threading.Thread(target=self._close_channels, name="close channels", daemon=True)
        closing.start()
        closing.join(timeout=_CLOSE_SECONDS)

    def _close_channels(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def _pack(self, weights: Mapping[str, Tensor]) -> bytes:
        """One block of bytes for all receivers."""
        return encode_weights(weights)

    def _send(self, message: Message) -> None:
        """Call the receiver; retry for `send_timeout` seconds while it does not listen."""
        request, receiver = self._make_request(message), int(message.get_receiver_id())
        stub = self._stub(receiver)
        deadline = time.monotonic() + self.address.send_timeout
        while True:
            left = max(0.1, deadline - time.monotonic())
            call = stub.sendMessage.future(request, timeout=left)
            try:
                call.result(timeout=left + 1.0)
                return
            except grpc.FutureTimeoutError as error:
                # A write that the network blocks may outlast the deadline of its call.
                call.cancel()
                raise Unreachable(
                    f"{self._target(receiver)} (a write was blocked for {self.address.send_timeout:g} s)"
                ) from error
            except grpc.RpcError as error:
                self._note_rejection(call)
                if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() + 0.2 > deadline:
                    raise Unreachable(f"{self._target(receiver)} ({error.code().name}: {error.details()})") from error
            time.sleep(0.2)

    def _send_nowait(self, message: Message) -> None:
        """Call without waiting for the response."""
        stub = self._stub(int(message.get_receiver_id()))
        call = stub.sendMessage.future(self._make_request(message), timeout=_NOWAIT_SECONDS)
        # gRPC cancels a call that is no longer referenced.
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        call.add_done_callback(self._note_rejection)

    def _note_rejection(self, call: grpc.Future) -> None:
        """A silo without a valid certificate ends; a silo cannot end its server."""
        if self.address.rank != 0 and call.code() is grpc.StatusCode.PERMISSION_DENIED:
            self.rejection = str(call.details())

    def _make_request(self, message: Message) -> CommRequest:
        return CommRequest(client_id=self.address.own_id, message=encode(message.get_params()))

    def _stub(self, receiver: int) -> gRPCCommManagerStub:
        with self._channels_lock:
            if receiver not in self._channels:
                target = self._target(receiver)
                self._channels[receiver] = open_channel(target, self._credentials, _OPTIONS)
            return gRPCCommManagerStub(self._channels[receiver])

    def _target(self, receiver: int) -> str:
        mapping = self._addresses[receiver]
        return f"{mapping.ingress_ip or mapping.grpc_server_ip}:{mapping.grpc_server_port}"


def listen(server: grpc.Server, address: str, settings: SiloSettings) -> None:
    """Open the port of a server, with TLS if there are certificates, and start it."""
    credentials = server_credentials(settings)
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError:
        port = 0
    if port == 0:
        raise UserError(
            f"cannot listen on {address}: the port is in use or the address is not of this machine; change it in "
            "comm_args.grpc_ipconfig_path or comm_args.server_address"
        )
    server.start()


def open_channel(
    target: str, credentials: grpc.ChannelCredentials | None, options: Sequence[tuple[str, int | str]]
) -> grpc.Channel:
    """A channel to an address, with TLS if there are certificates."""
    if credentials is None:
        return grpc.insecure_channel(target, options=options)
    return grpc.secure_channel(target, credentials, options=options)


def read_addresses(file: str | None, ranks: Mapping[int, int]) -> dict[int, GRPCMapping]:
    """FedML's table `eid,rank,grpc_server_ip,grpc_server_port[,ingress_ip]`; without one, all are on this machine."""
    if not file:
        base = CommunicationConstants.GRPC_BASE_PORT
        return {party: GRPCMapping(party, rank, "127.0.0.1", base + rank, None) for party, rank in ranks.items()}
    if not Path(file).is_file():
        raise UserError(f"comm_args.grpc_ipconfig_path: there is no file {file!r}; write it or correct the path")
    # FedML's parser of the table, without its constructor, which opens a port.
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
            raise UserError(f"{file!r} has no line for eid {party}; add one for the server (0) and one for every silo")
    return table.grpc_mappings
