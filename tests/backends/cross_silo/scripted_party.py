"""A party of a federation whose messages a test writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mrtf_fedml.config import RunSettings, SiloSettings
from mrtf_fedml.data import load_for_rank
from mrtf_fedml.fedml_bridge.backends.cross_silo import protocol
from mrtf_fedml.fedml_bridge.backends.cross_silo.handshake import Handshake
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.base import PartyAddress, Transport
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.grpc import GrpcTransport
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.grpc_outbound import make_outbound_transport
from mrtf_fedml.fedml_bridge.participants import make_model
from tests.backends.cross_silo.federation import Federation
from tests.fedml_bridge.backends.cross_silo.transports.test_grpc import call


class ScriptedParty:
    """A transport, and all that it has received."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._received: list[Any] = []

    @property
    def received(self) -> list[Any]:
        while (message := self.transport.receive(0.0)) is not None:
            self._received.append(message)
        return self._received

    @property
    def tasks(self) -> list[Any]:
        return [message for message in self.received if message.get_type() == protocol.TASK]


class GrpcParty(ScriptedParty):
    """The party of this rank over GRPC, in this process."""

    def __init__(self, federation: Federation, rank: int) -> None:
        args = SimpleNamespace(grpc_ipconfig_path=federation.comm["grpc_ipconfig_path"])
        self.ports, self.connection = federation.ports, federation.comm.get("connection", "outbound")
        make = GrpcTransport if self.connection == "two_way" else make_outbound_transport
        super().__init__(make(args, PartyAddress(rank, rank, {0: 0, 1: 1, 2: 2}, 2, 60.0), SiloSettings()))

    def send_bytes(self, receiver: int, content: bytes) -> None:
        """Send any bytes in the place of a message."""
        if self.connection == "two_way":
            call(self.ports[receiver], content)
        else:
            self.transport._link(receiver).send(content, 60.0)  # type: ignore[attr-defined]


def handshake_of(federation: Federation) -> dict[str, Any]:
    """The handshake of the federation's second silo."""
    settings = RunSettings.from_config(federation.config)
    dataset = load_for_rank(settings, 2)
    model = make_model(settings, dataset)
    return Handshake.create(model.state_dict(), dataset, settings.privacy).to_dict()
