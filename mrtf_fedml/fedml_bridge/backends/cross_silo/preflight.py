"""The questions of `mrtf preflight` that need the transport: listening, and asking the server what differs."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ....config import RunSettings
from ....errors import RunStopped
from . import protocol
from .client import make_silo_folder
from .handshake import Handshake
from .party import Party
from .payload_validation import PayloadSchema

#: Seconds between two questions.
_INTERVAL = 1.0
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class ServerReport:
    """The server's reply.

    Attributes:
        differences: by field of the handshake, one sentence per difference.
        clock_difference: the server's clock minus this one's, in seconds.
        round_trip: seconds between question and reply.
    """

    differences: Mapping[str, str]
    clock_difference: float
    round_trip: float


def try_to_listen(args: Any, settings: RunSettings, weights: Mapping[str, Tensor]) -> None:
    """Open the server's transport and close it again.

    Raises:
        UserError: the port, or what the backend has instead, cannot be used.
        RunStopped: it cannot be reached.
    """
    Party(args, settings, PayloadSchema(weights)).transport.close()


def reach_server(args: Any, settings: RunSettings) -> str:
    """Open a connection to the server's port, or to the proxy on the way to it; what accepted it.

    Raises:
        RunStopped: it is not accepted.
    """
    from .transports.grpc_outbound import find_proxy, format_proxy, server_addresses

    target = server_addresses(args, settings.silo)[0]
    proxy = find_proxy(target)
    address = target if proxy is None else format_proxy(proxy)
    host, _, port = address.rpartition(":")
    name = address if proxy is None else f"the proxy {address} to {target}"
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise RunStopped(f"{name} cannot be reached ({error})") from None
    return f"{name} accepts connections"


def ask_server(
    args: Any, settings: RunSettings, weights: Mapping[str, Tensor], handshake: Handshake, seconds: float
) -> ServerReport:
    """Ask the running server what differs, without taking part.

    Raises:
        RunStopped: it has not replied in time, or refuses this silo.
    """
    party = Party(args, settings, PayloadSchema(weights), is_check=True)
    try:
        # The question leaves this party, so it is in its audit log.
        with party.audit_messages(make_silo_folder(settings, party.rank)):
            return _ask(party, handshake, seconds)
    finally:
        party.transport.close()


def _ask(party: Party, handshake: Handshake, seconds: float) -> ServerReport:
    deadline, asked = time.monotonic() + seconds, 0.0
    question = party.incarnation, party.address.own_id, protocol.CHECK, handshake.to_dict()
    while time.monotonic() < deadline:
        if time.monotonic() > asked + _INTERVAL:
            asked = time.monotonic()
            party.transport.send_nowait(protocol.status_message(*question))
        message = party.receive(0.2)
        report = None if message is None else protocol.get_report(message)
        if report is not None:
            return _read_report(report)
        if message is not None and message.get_type() == protocol.FINISH:
            raise RunStopped(f"the server refuses this silo: {protocol.get_reason(message)}")
    problem = f" ({party.transport.problem})" if party.transport.problem else ""
    raise RunStopped(f"the server has not replied within {seconds:g} s{problem}")


def _read_report(report: Mapping[str, Any]) -> ServerReport:
    now = time.time()
    try:
        asked, replied = float(report["asked"]), float(report["replied"])
    except (KeyError, TypeError, ValueError):
        raise RunStopped("the server's reply cannot be read; install the same version of mrtf_fedml") from None
    differences = {str(key): str(sentence) for key, sentence in report["differences"].items()}
    return ServerReport(differences, replied - (asked + now) / 2, now - asked)
