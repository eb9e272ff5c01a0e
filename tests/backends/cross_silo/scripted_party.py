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
from mrtf_fedml.fedml_bridge.participants import make_model
from tests.backends.cross_silo.federation import Federation


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


def grpc_party(federation: Federation, rank: int) -> ScriptedParty:
    """The party of this rank, in this process."""
    args = SimpleNamespace(grpc_ipconfig_path=federation.comm["grpc_ipconfig_path"])
    return ScriptedParty(GrpcTransport(args, PartyAddress(rank, rank, {0: 0, 1: 1, 2: 2}, 2, 60.0), SiloSettings()))


def handshake_of(federation: Federation) -> dict[str, Any]:
    """The handshake of the federation's second silo."""
    settings = RunSettings.from_config(federation.config)
    dataset = load_for_rank(settings, 2)
    model = make_model(settings, dataset)
    return Handshake.create(model.state_dict(), dataset.class_names, dataset.features, settings.privacy).to_dict()
