"""Both forms of the GRPC transport: large models, unknown senders, and certificates."""

from __future__ import annotations

import contextlib
import json
import pickle
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import torch
from fedml.core.distributed.communication.grpc.grpc_comm_manager_pb2 import CommRequest
from fedml.core.distributed.communication.grpc.grpc_comm_manager_pb2_grpc import gRPCCommManagerStub

from mrtf_fedml.config import SiloSettings
from mrtf_fedml.errors import RunStopped, UserError
from mrtf_fedml.fedml_bridge.backends.cross_silo import protocol
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.base import (
    MessageRecord,
    PartyAddress,
    Transport,
    Unreachable,
)
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.codec import WEIGHTS, encode
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.grpc import GrpcTransport
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.grpc_outbound import make_outbound_transport
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.revocation import certificate_digest
from tests.backends.cross_silo.certificates import Authority
from tests.backends.cross_silo.federation import PATIENCE, free_ports, grpc_table, wait_until

FORMS = ("outbound", "two_way")
both_forms = pytest.mark.parametrize("connection", FORMS)


@contextlib.contextmanager
def open_transport(
    folder: Path, rank: int, ports: list[int], send_timeout: float = 60.0, connection: str = "two_way", **tls: Any
) -> Iterator[Transport]:
    """A party's transport, in this process."""
    args = SimpleNamespace(grpc_ipconfig_path=str(grpc_table(folder / "grpc.csv", ports)))
    make = GrpcTransport if connection == "two_way" else make_outbound_transport
    transport = make(args, PartyAddress(rank, rank, {0: 0, 1: 1}, 1, send_timeout), SiloSettings(**tls))
    try:
        yield transport
    finally:
        transport.close()


def call(port: int, content: bytes, credentials: Any = None, caller: int = 1) -> None:
    """Send bytes to a port, as anybody who reaches it can."""
    target = f"127.0.0.1:{port}"
    channel = grpc.secure_channel(target, credentials) if credentials else grpc.insecure_channel(target)
    with channel:
        gRPCCommManagerStub(channel).sendMessage(CommRequest(client_id=caller, message=content), timeout=10)


def status_bytes() -> bytes:
    return encode(protocol.status_message("unknown", 1, protocol.ONLINE, {}).get_params())


@both_forms
def test_model_of_100_megabytes_is_delivered(tmp_path: Path, connection: str) -> None:
    weights = OrderedDict(large=torch.randn(25, 1_000_000), tied=torch.zeros(()))
    ports = free_ports(2)
    with (
        open_transport(tmp_path, 0, ports, connection=connection) as server,
        open_transport(tmp_path, 1, ports, connection=connection) as silo,
    ):
        server.send(protocol.task_message("incarnation", 1, 0, 7, server.pack(weights)))
        message = silo.receive(PATIENCE)
    assert protocol.get_round(message) == 7
    assert torch.equal(protocol.get_weights(message)["large"], weights["large"])
    assert list(protocol.get_weights(message)) == ["large", "tied"]


@both_forms
def test_observers_of_sender_and_receiver_see_the_same_payload(tmp_path: Path, connection: str) -> None:
    sent: list[MessageRecord] = []
    received: list[MessageRecord] = []
    ports = free_ports(2)
    with (
        open_transport(tmp_path, 0, ports, connection=connection) as server,
        open_transport(tmp_path, 1, ports, connection=connection) as silo,
    ):
        server.observers.append(received.append)
        silo.observers.append(sent.append)
        weights = OrderedDict(z=torch.randn(3, 2), a=torch.tensor(7))
        for message in (
            protocol.status_message("incarnation", 1, protocol.ONLINE, {"class_names": ["ä"], "privacy": [0.1, None]}),
            protocol.update_message("incarnation", 1, 4, 10, weights),
            protocol.update_message("incarnation", 1, 5, 10, silo.pack(weights)),
        ):
            silo.send(message)
            assert server.receive(PATIENCE) is not None
    assert [(record.kind, record.round, record.parts) for record in sent] == [
        ("status", None, ()),
        ("update", 4, ("z", "a")),
        ("update", 5, ("z", "a")),
    ]
    assert [record.payload for record in received] == [record.payload for record in sent]
    assert {(record.direction, record.peer) for record in received} == {("received", 1)}
    assert {(record.direction, record.peer) for record in sent} == {("sent", 0)}


@pytest.mark.parametrize("weights", [{"a": [1]}, [1], "all of them", 7])
def test_observers_of_message_without_tensors_do_not_fail(tmp_path: Path, weights: Any) -> None:
    records: list[MessageRecord] = []
    ports = free_ports(2)
    with open_transport(tmp_path, 0, ports) as server:
        server.observers.append(records.append)
        head = json.dumps({**protocol.update_message("x", 1, 4, 10, None).get_params(), WEIGHTS: weights}).encode()
        call(ports[0], len(head).to_bytes(4, "little") + head)
        assert server.receive(PATIENCE) is not None
    assert [(record.kind, record.round, record.parts) for record in records] == [("update", 4, ())]


class Bomb:
    """Runs when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def test_pickled_message_is_dropped_and_not_unpickled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ports = free_ports(2)
    with open_transport(tmp_path, 0, ports) as server:
        call(ports[0], pickle.dumps(Bomb(tmp_path / "ran")))
        call(ports[0], (2).to_bytes(4, "little") + b"{}" + pickle.dumps(Bomb(tmp_path / "ran")))
        call(ports[0], status_bytes())
        assert server.receive(PATIENCE) is not None, "the third message"
        assert server.receive(0.0) is None
    assert not (tmp_path / "ran").exists()
    assert caplog.text.count("was dropped") == 2


def test_callers_without_signed_certificate_are_rejected(tmp_path: Path) -> None:
    authority, unknown = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    ports = free_ports(2)
    tls = {0: authority.party("server"), 1: authority.party("silo1")}
    with open_transport(tmp_path, 0, ports, **tls[0]) as server, open_transport(tmp_path, 1, ports, **tls[1]) as silo:
        silo.send(protocol.status_message("incarnation", 1, protocol.ONLINE, {}))
        assert server.receive(PATIENCE) is not None
        trusting = grpc.ssl_channel_credentials(authority.file.read_bytes())
        other = unknown.party("silo1")
        forged = grpc.ssl_channel_credentials(
            authority.file.read_bytes(),
            Path(other["tls_key"]).read_bytes(),
            Path(other["tls_certificate"]).read_bytes(),
        )
        for credentials in (None, trusting, forged):
            with pytest.raises(grpc.RpcError) as rejected:
                call(ports[0], status_bytes(), credentials)
            assert rejected.value.code() == grpc.StatusCode.UNAVAILABLE
        assert server.receive(0.0) is None


def test_caller_with_certificate_of_another_silo_is_rejected(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority, ports = Authority(tmp_path / "ours"), free_ports(2)
    second = authority.party("silo2")
    with open_transport(tmp_path, 0, ports, **authority.party("server")) as server:
        credentials = grpc.ssl_channel_credentials(
            authority.file.read_bytes(),
            Path(second["tls_key"]).read_bytes(),
            Path(second["tls_certificate"]).read_bytes(),
        )
        with pytest.raises(grpc.RpcError) as rejected:
            call(ports[0], status_bytes(), credentials, caller=1)
        assert rejected.value.code() == grpc.StatusCode.PERMISSION_DENIED
        assert "the certificate is issued to 127.0.0.1, silo2, not to 'silo1'" in str(rejected.value.details())
        # With its own id it is accepted, and a message with another sender id is dropped.
        call(ports[0], status_bytes(), credentials, caller=2)
        own = protocol.status_message("own", 2, protocol.ONLINE, {})
        call(ports[0], encode(own.get_params()), credentials, caller=2)
        message = server.receive(PATIENCE)
        assert message is not None
        assert protocol.get_sender(message) == 2
        assert server.receive(0.0) is None
    assert "silo2 has sent it under the sender id '1'" in caplog.text
    wrong = pytest.raises(UserError, match=r"comm_args\.tls_certificate .* silo2, but this party is 'silo1'")
    with wrong, open_transport(tmp_path, 1, ports, **second):
        pass
    mixed = {**second, "tls_key": authority.party("silo3")["tls_key"]}
    wrong = pytest.raises(UserError, match=r"comm_args\.tls_certificate, tls_key")
    with wrong, open_transport(tmp_path, 1, ports, **mixed):
        pass


@both_forms
def test_send_to_server_of_another_authority_fails(tmp_path: Path, connection: str) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    ports = free_ports(2)
    with (
        open_transport(tmp_path, 0, ports, connection=connection, **theirs.party("server")) as server,
        open_transport(tmp_path, 1, ports, 2.0, connection, **ours.party("silo1")) as silo,
    ):
        with pytest.raises(Unreachable):
            silo.send(protocol.status_message("incarnation", 1, protocol.ONLINE, {}))
        assert server.receive(0.0) is None


@pytest.mark.parametrize(
    ("tls", "named"),
    [
        ({"tls_certificate": "a.pem"}, "comm_args.tls_key"),
        ({"tls_certificate": "no.pem", "tls_key": "no.key", "tls_authority": "no.pem"}, "'no.pem' cannot be read"),
    ],
)
@both_forms
def test_certificate_files_that_are_missing_are_named(
    tmp_path: Path, connection: str, tls: dict[str, str], named: str
) -> None:
    with (
        pytest.raises(UserError, match=named),
        open_transport(tmp_path, 0, free_ports(2), connection=connection, **tls),
    ):
        pass


_INTERRUPTED_CALL = """
import sys
from types import SimpleNamespace

import grpc._channel

from mrtf_fedml.config import SiloSettings
from mrtf_fedml.fedml_bridge.backends.cross_silo import protocol
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports import base, grpc as transport

def interrupt(*_):
    raise KeyboardInterrupt

grpc._channel._run_channel_spin_thread = interrupt
transport._CLOSE_SECONDS = 0.5
address = base.PartyAddress(1, 1, {0: 0, 1: 1}, 1, 60.0)
silo = transport.GrpcTransport(SimpleNamespace(grpc_ipconfig_path=sys.argv[1]), address, SiloSettings())
try:
    silo.send_nowait(protocol.status_message("incarnation", 1, protocol.ONLINE, {}))
except KeyboardInterrupt:
    silo.close()
    print("closed after Ctrl-C")
"""


def test_close_returns_after_ctrl_c_at_the_start_of_a_call(tmp_path: Path) -> None:
    """In a process of its own: gRPC waits for such a call for ever when its channel is freed, in whichever thread."""
    table = grpc_table(tmp_path / "grpc.csv", free_ports(2))
    command = [sys.executable, "-c", _INTERRUPTED_CALL, str(table)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, "closed after Ctrl-C"), ended.stderr[-2000:]


def test_port_in_use_and_wrong_table_are_errors(tmp_path: Path) -> None:
    ports = free_ports(2)
    taken = pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{ports[0]}")
    with open_transport(tmp_path, 0, ports), taken, open_transport(tmp_path, 0, ports):
        pass
    address, settings = PartyAddress(0, 0, {0: 0, 1: 1}, 1, 1.0), SiloSettings()
    with pytest.raises(UserError, match=r"comm_args\.grpc_ipconfig_path: there is no file 'none"):
        GrpcTransport(SimpleNamespace(grpc_ipconfig_path="none.csv"), address, settings)
    short = grpc_table(tmp_path / "short.csv", ports[:1])
    with pytest.raises(UserError, match="has no line for eid 1"):
        GrpcTransport(SimpleNamespace(grpc_ipconfig_path=str(short)), address, settings)
    with pytest.raises(UserError, match=r"comm_args\.server_address"):
        GrpcTransport(SimpleNamespace(), address, SiloSettings(server_address="127.0.0.1:1"))


@both_forms
def test_revoked_certificate_is_refused_at_once(tmp_path: Path, connection: str) -> None:
    authority, revoked, ports = Authority(tmp_path / "authority"), tmp_path / "revoked.txt", free_ports(2)
    revoked.touch()
    own, theirs = authority.party("server"), authority.party("silo1")

    def open_silo() -> contextlib.AbstractContextManager[Transport]:
        return open_transport(tmp_path, 1, ports, connection=connection, **theirs)

    def hello(silo: Transport) -> None:
        silo.send(protocol.status_message("silo", 1, protocol.ONLINE, {}))

    with open_transport(tmp_path, 0, ports, connection=connection, tls_revoked=str(revoked), **own) as server:
        with open_silo() as silo:
            hello(silo)
            assert server.receive(PATIENCE) is not None
            assert server.drop_revoked() == []
            digest = certificate_digest(Path(theirs["tls_certificate"]).read_bytes())
            revoked.write_text(f"{digest} silo1\n")
            assert server.drop_revoked() == [1]
            # Over the outbound form the server has closed the stream, and the silo connects again.
            with pytest.raises((ConnectionError, RunStopped)):
                hello(silo)
            assert_rejected(silo)
        with open_silo() as silo:
            silo.send_nowait(protocol.status_message("again", 1, protocol.ONLINE, {}))
            assert_rejected(silo)
        assert server.receive(0.0) is None
        assert server.drop_revoked() == [], "it is reported once"


def assert_rejected(silo: Transport) -> None:
    wait_until(lambda: silo.rejection, "a rejection")
    with pytest.raises(RunStopped, match="its certificate is revoked"):
        silo.receive(0.0)
