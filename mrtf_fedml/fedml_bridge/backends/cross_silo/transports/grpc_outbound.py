"""GRPC over one outgoing connection per silo: only the server listens.

A silo opens one connection to the server and keeps it. Tasks and updates travel on one bidirectional stream of our own
service, as frames of a `Link`, so a silo may be behind a firewall or an address translation. Keepalive detects a
broken connection; the silo then opens another one, and transfers that were cut off continue.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import queue
import random
import threading
import time
import uuid
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.request import getproxies, proxy_bypass

import grpc
from fedml.core.distributed.communication.constants import CommunicationConstants
from fedml.core.distributed.communication.message import Message
from torch import Tensor

from .....config import SiloSettings
from .....errors import UserError
from ..protocol import SERVER
from .base import PartyAddress, Transport, run_in_thread
from .codec import UnreadableMessage, decode, encode, encode_weights
from .grpc import COMMON_OPTIONS, listen, open_channel, read_addresses
from .revocation import REASON as REVOKED
from .revocation import RevocationList, peer_digest
from .tls import channel_credentials, check_own_certificate, find_identity_mismatch, party_name
from .transfers import MAX_FRAME_BYTES, InvalidFrame, Link

_log = logging.getLogger(__name__)

_METHOD = "/mrtf_fedml.Federation/Connect"
#: Parties with different numbers cannot exchange frames.
_PROTOCOL = "1"
_OPTIONS = [
    *COMMON_OPTIONS,
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    # A connection attempt whose packets are lost ends after this time; the default is 20 seconds.
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # A ping may wait behind a full window, which takes four seconds at 1 Mbit/s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 15_000),
]
#: Seconds between two attempts of a silo to connect.
_MIN_PAUSE, _MAX_PAUSE = 0.2, 2.0
#: A silo ends if the server rejects it with one of these: trying again does not help.
_FINAL_CODES = {
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.UNIMPLEMENTED,
}
_CLOSE_SECONDS = 5.0


class _OutboundTransport(Transport):
    """What server and silos have in common: messages travel over links."""

    def _pack(self, weights: Mapping[str, Tensor]) -> bytes:
        """One block of bytes for all receivers."""
        return encode_weights(weights)

    def _send(self, message: Message) -> None:
        """Send over the link; fail if there is no progress for `send_timeout` seconds."""
        self._link(int(message.get_receiver_id())).send(encode(message.get_params()), self.address.send_timeout)

    def _send_nowait(self, message: Message) -> None:
        """Send if there is a connection."""
        self._link(int(message.get_receiver_id())).send_notice(encode(message.get_params()))

    @abstractmethod
    def _link(self, party: int) -> Link:
        """The link to a party."""

    def _make_link(self, party: int) -> Link:
        def deliver(content: bytes) -> bool:
            return self.deliver(lambda: _decode_from(party, content))

        return Link(party_name(party), deliver, self.address.max_message_bytes)


class OutboundServer(_OutboundTransport):
    """The server: it listens, and has one link per silo."""

    def __init__(self, args: Any, address: PartyAddress, settings: SiloSettings) -> None:
        super().__init__(address)
        check_own_certificate(settings, address.own_id)
        self._uses_tls = settings.tls_certificate is not None
        self._links = {party: self._make_link(party) for party in self.peers}
        self._revoked = RevocationList(settings.tls_revoked)
        #: The current connection of each silo, and the digest of its certificate.
        self._connections: dict[int, tuple[object, str | None]] = {}
        # A stream has a thread as long as it lasts. A silo has two for a moment, when it connects again.
        streams = 2 * len(self._links) + 4
        self._server = grpc.server(
            ThreadPoolExecutor(max_workers=streams),
            handlers=[_Service(self)],
            options=_OPTIONS,
            maximum_concurrent_rpcs=streams,
        )
        listen(self._server, server_addresses(args, settings)[1], settings)

    def close(self, graceful: bool = False) -> None:
        """End the streams when their last frames are written, and close the port."""

        def close() -> None:
            for link in self._links.values():
                link.close("the server ends")
            self._server.stop(grace=1.0).wait(timeout=_CLOSE_SECONDS)

        run_in_thread(close)

    def accept(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """A silo's stream: the frames for it."""
        metadata = dict(context.invocation_metadata())
        self._check_caller(metadata, context)
        party, process = int(metadata["party"]), str(metadata["process"])
        link, digest = self._links[party], peer_digest(context.auth_context())
        connection = link.connect(process)
        self._connections[party] = connection, digest
        if not context.add_callback(lambda: link.disconnect(connection)):
            link.disconnect(connection)
        context.send_initial_metadata(())
        _log.info("%s has connected", party_name(party))
        threading.Thread(
            target=_read_frames,
            args=(link, connection, self._refuse_if_revoked(requests, digest), context),
            name=f"reads {party}",
            daemon=True,
        ).start()
        yield from link.frames(connection)
        if digest in self._revoked:
            context.set_code(grpc.StatusCode.PERMISSION_DENIED)
            context.set_details(REVOKED)
        elif link.process != process:
            context.set_code(grpc.StatusCode.ABORTED)
            context.set_details(f"another process has connected as {party_name(party)}")

    def seconds_disconnected(self, party: int) -> float:
        """For how long the silo has had no connection."""
        return self._links[party].seconds_disconnected

    def drop_revoked(self) -> list[int]:
        """Disconnect the silos whose certificates were revoked; the ids of those that were connected."""
        dropped = [party for party, (_, digest) in list(self._connections.items()) if digest in self._revoked]
        for party in dropped:
            self._links[party].disconnect(self._connections.pop(party)[0])
        return dropped

    def _refuse_if_revoked(self, requests: Iterator[bytes], digest: str | None) -> Iterator[bytes]:
        """The frames that arrive before the certificate is revoked."""
        for frame in requests:
            if digest in self._revoked:
                return
            yield frame

    def _link(self, party: int) -> Link:
        return self._links[party]

    def _check_caller(self, metadata: Mapping[str, Any], context: grpc.ServicerContext) -> None:
        party = str(metadata.get("party"))
        if metadata.get("protocol") != _PROTOCOL:
            _reject(context, grpc.StatusCode.FAILED_PRECONDITION, "its version of mrtf_fedml differs from the server's")
        if not (party.isascii() and party.isdigit() and len(party) < 20 and int(party) in self._links):
            reason = f"it has the id {party[:20]!r}, and the silos are {_format_range(sorted(self._links))}"
            _reject(context, grpc.StatusCode.FAILED_PRECONDITION, reason)
        mismatch = find_identity_mismatch(context.auth_context(), int(party)) if self._uses_tls else None
        if mismatch is not None:
            _reject(context, grpc.StatusCode.PERMISSION_DENIED, mismatch)
        if peer_digest(context.auth_context()) in self._revoked:
            _reject(context, grpc.StatusCode.PERMISSION_DENIED, f"{party_name(int(party))}: {REVOKED}")
        if metadata.get("check") == "1" and not self.seconds_disconnected(int(party)):
            reason = f"{party_name(int(party))} is running and connected; end it before it is checked, or wait 30 s"
            _reject(context, grpc.StatusCode.FAILED_PRECONDITION, reason)


class _Service(grpc.GenericRpcHandler):
    """Our service, without protobuf: requests and responses are the frames themselves."""

    def __init__(self, transport: OutboundServer) -> None:
        self._handler = grpc.stream_stream_rpc_method_handler(transport.accept)
        self._has_warned = False

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """The handler of a method; None if there is no such method."""
        if handler_call_details.method == _METHOD:
            return self._handler
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "a party has called %s and is ignored; give all parties the same comm_args.connection and version",
                ascii(str(handler_call_details.method))[:100],
            )
        return None


class OutboundSilo(_OutboundTransport):
    """A silo: it connects to the server, again and again if need be, and does not listen."""

    def __init__(self, args: Any, address: PartyAddress, settings: SiloSettings) -> None:
        super().__init__(address)
        check_own_certificate(settings, address.own_id)
        self._target, _ = server_addresses(args, settings)
        self._server_link = self._make_link(SERVER)
        self._metadata = (
            ("protocol", _PROTOCOL),
            ("party", str(address.own_id)),
            ("process", uuid.uuid4().hex),
            ("check", str(int(address.is_check))),
        )
        proxy = find_proxy(self._target)
        options: list[tuple[str, int | str]] = [*_OPTIONS, ("grpc.enable_http_proxy", int(proxy is not None))]
        if proxy is not None:
            _log.info("silo %d connects through the proxy %s", address.rank, format_proxy(proxy))
            options.append(("grpc.http_proxy", proxy))
        self._channel = open_channel(self._target, channel_credentials(settings), options)
        self._call: grpc.Call | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._stay_connected, name="connection to the server", daemon=True).start()

    def close(self, graceful: bool = False) -> None:
        """Close the connection."""

        def close() -> None:
            self._closed.set()
            self._server_link.close("this silo ends")
            if self._call is not None:
                self._call.cancel()
            self._channel.close()

        # gRPC may wait for a call that Ctrl-C has interrupted.
        with contextlib.suppress(TimeoutError):
            run_in_thread(close, _CLOSE_SECONDS)

    def _link(self, party: int) -> Link:
        return self._server_link

    def _stay_connected(self) -> None:
        pause = _MIN_PAUSE
        while not self._closed.is_set():
            began = time.monotonic()
            reason = self._exchange_frames()
            if self._closed.is_set() or self.rejection is not None:
                return
            if reason != self.problem:
                _log.warning("silo %d has no connection to the server (%s); it tries again", self.address.rank, reason)
                self.problem = reason
            pause = _MIN_PAUSE if time.monotonic() - began > _MAX_PAUSE else min(2 * pause, _MAX_PAUSE)
            # Silos that have lost the same server do not connect in the same moment.
            self._closed.wait(pause * random.uniform(0.5, 1.0))

    def _exchange_frames(self) -> str:
        """Connect, and exchange frames until the connection ends; the reason of its end."""
        connections: queue.SimpleQueue[object | None] = queue.SimpleQueue()

        def requests() -> Iterator[bytes]:
            connection = connections.get()
            if connection is not None:
                yield from self._server_link.frames(connection)

        connection: object | None = None
        try:
            connect = self._channel.stream_stream(_METHOD)
            call = self._call = connect(requests(), metadata=self._metadata)
            # The server sends its metadata when it has accepted the stream.
            call.initial_metadata()
            if call.is_active():
                self.problem = ""
                connection = self._server_link.connect(self._target)
                connections.put(connection)
            for frame in call:
                self._server_link.on_frame(connection, frame)
        except InvalidFrame as error:
            call.cancel()
            return f"the server has sent invalid bytes: {error}"
        except grpc.RpcError as error:
            details = " ".join(str(error.details()).split())[:300]
            if error.code() in _FINAL_CODES:
                self.rejection = _explain_rejection(error.code(), details)
                self._server_link.close(self.rejection)
            return f"{error.code().name}: {details}"
        except ValueError:
            # The channel is closed.
            return "it was closed"
        finally:
            connections.put(None)
            if connection is not None:
                self._server_link.disconnect(connection)
        return "the server has closed it"


def make_outbound_transport(args: Any, address: PartyAddress, settings: SiloSettings) -> Transport:
    """The transport of a party: the server listens, a silo connects to it."""
    make = OutboundServer if address.rank == 0 else OutboundSilo
    return make(args, address, settings)


def server_addresses(args: Any, settings: SiloSettings) -> tuple[str, str]:
    """The address that silos connect to, and the one that the server listens on, as `host:port`."""
    table = getattr(args, "grpc_ipconfig_path", None)
    if settings.server_address and table:
        raise UserError("comm_args has both server_address and grpc_ipconfig_path; remove one of them")
    if table:
        row = read_addresses(table, {SERVER: 0})[SERVER]
        host, port = row.grpc_server_ip, row.grpc_server_port
        return f"{row.ingress_ip or host}:{port}", f"{host}:{port}"
    address = settings.server_address or f"127.0.0.1:{CommunicationConstants.GRPC_BASE_PORT}"
    host, _, port = address.rpartition(":")
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        # On many machines the own name means a loopback address, which no silo reaches.
        return address, address if host == "localhost" else f"[::]:{port}"
    return address, address


def find_proxy(target: str) -> str | None:
    """The HTTP proxy on the way to `host:port`, from the environment variables that other programs read too.

    Raises:
        UserError: it is not an HTTP proxy.
    """
    host = target.rpartition(":")[0].strip("[]")
    proxy = getproxies().get("https")
    if not proxy or host == "localhost" or proxy_bypass(host):
        return None
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return None
    url = proxy if "://" in proxy else f"http://{proxy}"
    if not url.startswith("http://"):
        raise UserError(
            f"the environment variable https_proxy names {format_proxy(url)!r}, and only proxies with http:// are "
            "supported; correct it, or add the server's host to no_proxy"
        )
    return url


def format_proxy(url: str) -> str:
    """The address of a proxy, without user and password.

    >>> format_proxy("http://user:secret@proxy.example:3128/")
    'proxy.example:3128'
    """
    scheme, _, rest = url.partition("://")
    address = rest.rpartition("@")[2].strip("/")
    return address if scheme == "http" else f"{scheme}://{address}"


def _read_frames(link: Link, connection: object, requests: Iterator[bytes], context: grpc.ServicerContext) -> None:
    try:
        for frame in requests:
            link.on_frame(connection, frame)
    except InvalidFrame as error:
        _log.warning("a connection was closed: %s", error)
        context.cancel()
    except Exception as error:
        # gRPC raises a bare exception when the stream has ended.
        _log.debug("a stream has ended (%s)", type(error).__name__)
    finally:
        link.disconnect(connection)


def _decode_from(party: int, content: bytes) -> Message:
    message = decode(content)
    if str(message.get_sender_id()) != str(party):
        sender = str(message.get_sender_id())[:20]
        raise UnreadableMessage(f"{party_name(party)} has sent it under the sender id {sender!r}")
    return message


def _reject(context: grpc.ServicerContext, code: grpc.StatusCode, reason: str) -> None:
    """End a stream; raises gRPC's exception."""
    _log.warning("a connection was rejected: %s", reason)
    context.abort(code, reason)


def _explain_rejection(code: grpc.StatusCode, details: str) -> str:
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return "there is no such service; give all parties the same comm_args.connection and version"
    return details


def _format_range(parties: list[int]) -> str:
    return f"{parties[0]} to {parties[-1]}" if parties else "none"
