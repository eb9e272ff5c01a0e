"""GRPC: large models, strangers at the port, and certificates on both sides."""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import torch
from fedml.core.distributed.communication.grpc.grpc_comm_manager_pb2 import CommRequest
from fedml.core.distributed.communication.grpc.grpc_comm_manager_pb2_grpc import gRPCCommManagerStub

from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.cross_silo import protocol
from mrtf_fedml.fedml_bridge.cross_silo.transports.backend import PartyAddress, Unreachable
from mrtf_fedml.fedml_bridge.cross_silo.transports.codec import encode
from mrtf_fedml.fedml_bridge.cross_silo.transports.grpc import GrpcBackend
from mrtf_fedml.settings import SiloSettings
from tests.backends.cross_silo.certificates import Authority
from tests.backends.cross_silo.federation import Federation, free_ports, grpc_table, wait_until
from tests.backends.cross_silo.test_parity import answer


class Listener:
    """Keeps what a backend delivers."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    def receive_message(self, kind: Any, message: Any) -> None:
        self.received.append(message)


@contextlib.contextmanager
def end(folder: Path, rank: int, ports: list[int], patience: float = 60.0, **tls: Any) -> Iterator[GrpcBackend]:
    """One end of a channel, in this process."""
    args = SimpleNamespace(grpc_ipconfig_path=str(grpc_table(folder / "grpc.csv", ports)))
    backend = GrpcBackend(args, PartyAddress(rank, rank, {0: 0, 1: 1}, 1, patience), SiloSettings(**tls))
    backend.listener = Listener()  # type: ignore[attr-defined]
    backend.add_observer(backend.listener)  # type: ignore[attr-defined]
    backend.handle_receive_message()
    try:
        yield backend
    finally:
        backend.stop_receive_message()


def call(port: int, content: bytes, credentials: Any = None, caller: int = 1) -> None:
    """What a stranger does who has found the port."""
    target = f"127.0.0.1:{port}"
    channel = grpc.secure_channel(target, credentials) if credentials else grpc.insecure_channel(target)
    with channel:
        gRPCCommManagerStub(channel).sendMessage(CommRequest(client_id=caller, message=content), timeout=10)


def hello() -> bytes:
    return encode(protocol.status("stranger", 1, protocol.ONLINE, {}).get_params())


def test_a_model_of_a_hundred_megabytes_arrives_whole(tmp_path: Path) -> None:
    weights = OrderedDict(large=torch.randn(25, 1_000_000), tied=torch.zeros(()))
    ports = free_ports(2)
    with end(tmp_path, 0, ports) as server, end(tmp_path, 1, ports) as silo:
        server.send_message(protocol.hand_out("incarnation", 1, 0, 7, server.pack(weights)))
        wait_until(lambda: silo.listener.received, "the message is there")
    (message,) = silo.listener.received
    assert protocol.round_of(message) == 7
    assert torch.equal(protocol.weights_in(message)["large"], weights["large"])
    assert list(protocol.weights_in(message)) == ["large", "tied"]


class Bomb:
    """Runs when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def test_what_a_stranger_sends_is_not_unpickled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ports = free_ports(2)
    with end(tmp_path, 0, ports) as server:
        call(ports[0], pickle.dumps(Bomb(tmp_path / "ran")))
        call(ports[0], (2).to_bytes(4, "little") + b"{}" + pickle.dumps(Bomb(tmp_path / "ran")))
        call(ports[0], hello())
        wait_until(lambda: server.listener.received, "the third message, so the first two are done with")
    assert not (tmp_path / "ran").exists()
    assert len(server.listener.received) == 1
    assert caplog.text.count("was dropped") == 2


def test_with_certificates_only_those_who_have_one_are_heard(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    ports = free_ports(2)
    tls = {0: authority.party("server"), 1: authority.party("silo1")}
    with end(tmp_path, 0, ports, **tls[0]) as server, end(tmp_path, 1, ports, **tls[1]) as silo:
        silo.send_message(protocol.status("incarnation", 1, protocol.ONLINE, {}))
        wait_until(lambda: server.listener.received, "the silo is heard")
        trusting = grpc.ssl_channel_credentials(authority.file.read_bytes())
        other = stranger.party("silo1")
        forged = grpc.ssl_channel_credentials(
            authority.file.read_bytes(),
            Path(other["tls_key"]).read_bytes(),
            Path(other["tls_certificate"]).read_bytes(),
        )
        for credentials in (None, trusting, forged):
            with pytest.raises(grpc.RpcError) as refused:
                call(ports[0], hello(), credentials)
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        assert len(server.listener.received) == 1


def test_a_certificate_says_which_silo_speaks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority, ports = Authority(tmp_path / "ours"), free_ports(2)
    second = authority.party("silo2")
    with end(tmp_path, 0, ports, **authority.party("server")) as server:
        credentials = grpc.ssl_channel_credentials(
            authority.file.read_bytes(),
            Path(second["tls_key"]).read_bytes(),
            Path(second["tls_certificate"]).read_bytes(),
        )
        with pytest.raises(grpc.RpcError) as refused:
            call(ports[0], hello(), credentials, caller=1)
        assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
        assert "the certificate is of 127.0.0.1, silo2, not of 'silo1'" in str(refused.value.details())
        # By its own name it comes in, and what it says in another's is dropped.
        call(ports[0], hello(), credentials, caller=2)
        call(ports[0], encode(protocol.status("own", 2, protocol.ONLINE, {}).get_params()), credentials, caller=2)
        wait_until(lambda: server.listener.received, "what it says in its own name")
    assert [protocol.sender_of(message) for message in server.listener.received] == [2]
    assert "silo2 speaks in the name of '1'" in caplog.text
    wrong = pytest.raises(UserError, match="is of silo2, but this party is 'silo1'")
    with wrong, end(tmp_path, 1, ports, **second):
        pass
    mixed = {**second, "tls_key": authority.party("silo3")["tls_key"]}
    with pytest.raises(UserError, match="do not fit together"), end(tmp_path, 1, ports, **mixed):
        pass


def test_a_silo_does_not_speak_to_a_server_of_another_authority(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    ports = free_ports(2)
    with (
        end(tmp_path, 0, ports, **theirs.party("server")) as server,
        end(tmp_path, 1, ports, patience=2.0, **ours.party("silo1")) as silo,
    ):
        with pytest.raises(Unreachable):
            silo.send_message(protocol.status("incarnation", 1, protocol.ONLINE, {}))
        assert server.listener.received == []


def test_a_whole_federation_with_certificates(tmp_path: Path, one_process: Callable[..., Path]) -> None:
    authority = Authority(tmp_path / "certificates")
    with Federation(tmp_path, 2, comm_round=1) as federation:
        for rank in range(3):
            config = deepcopy(federation.config)
            config["comm_args"] |= authority.party(f"silo{rank}" if rank else "server")
            federation.start(rank, config=config)
        assert [party.ended() for party in federation.parties] == [0, 0, 0], federation.parties[0].told
        assert answer(federation.run_dir) == answer(one_process(2, comm_round=1))


@pytest.mark.parametrize(
    ("tls", "told"),
    [
        ({"tls_certificate": "a.pem"}, "comm_args.tls_key is not given"),
        ({"tls_certificate": "no.pem", "tls_key": "no.key", "tls_authority": "no.pem"}, "'no.pem' cannot be read"),
    ],
)
def test_certificates_that_are_not_there_are_named(tmp_path: Path, tls: dict[str, str], told: str) -> None:
    with pytest.raises(UserError, match=told), end(tmp_path, 0, free_ports(2), **tls):
        pass


def test_a_call_that_ctrl_c_cuts_off_at_its_start_does_not_keep_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    ports = free_ports(2)
    with end(tmp_path, 0, ports) as server, end(tmp_path, 1, ports) as silo:
        server.ping(protocol.status("incarnation", 0, protocol.ONLINE, {}))
        monkeypatch.setattr("grpc._channel._run_channel_spin_thread", interrupted)
        monkeypatch.setattr(f"{GrpcBackend.__module__}._CLOSE_SECONDS", 0.5)
        with pytest.raises(KeyboardInterrupt):
            silo.ping(protocol.status("incarnation", 1, protocol.ONLINE, {}))
        closing = threading.Thread(target=silo.stop_receive_message, daemon=True)
        closing.start()
        closing.join(timeout=30)
        assert not closing.is_alive()


def test_a_taken_port_and_a_wrong_table_are_named(tmp_path: Path) -> None:
    ports = free_ports(2)
    taken = pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{ports[0]}")
    with end(tmp_path, 0, ports), taken, end(tmp_path, 0, ports):
        pass
    address, settings = PartyAddress(0, 0, {0: 0, 1: 1}, 1, 1.0), SiloSettings()
    with pytest.raises(UserError, match="there is no file 'none"):
        GrpcBackend(SimpleNamespace(grpc_ipconfig_path="none.csv"), address, settings)
    short = grpc_table(tmp_path / "short.csv", ports[:1])
    with pytest.raises(UserError, match="has no line for eid 1"):
        GrpcBackend(SimpleNamespace(grpc_ipconfig_path=str(short)), address, settings)
