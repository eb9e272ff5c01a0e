"""GRPC over one outgoing connection per silo: who may connect, and what happens when the connection breaks."""

from __future__ import annotations

import contextlib
import pickle
import random
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import torch

from mrtf_fedml.config import SiloSettings
from mrtf_fedml.errors import RunStopped, UserError
from mrtf_fedml.fedml_bridge.backends.cross_silo import protocol
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports import grpc_outbound, transfers
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.base import PartyAddress, Transport
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.codec import encode
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.grpc import GrpcTransport
from tests.backends.cross_silo.certificates import Authority
from tests.backends.cross_silo.federation import free_ports, grpc_table, wait_until
from tests.backends.cross_silo.proxy import Proxy, set_proxies
from tests.fedml_bridge.backends.cross_silo.transports.test_grpc import Bomb, status_bytes

PATIENCE = 60.0


@contextlib.contextmanager
def open_party(
    rank: int, port: int, silos: int = 1, send_timeout: float = 60.0, **settings: Any
) -> Iterator[Transport]:
    """A party's transport, in this process."""
    ranks = {number: number for number in range(silos + 1)}
    limit, is_check = settings.pop("max_message_bytes", 2**30), settings.pop("is_check", False)
    address = PartyAddress(rank, rank, ranks, silos, send_timeout, limit, is_check)
    settings = {"server_address": f"127.0.0.1:{port}"} | settings
    transport = grpc_outbound.make_outbound_transport(SimpleNamespace(), address, SiloSettings(**settings))
    try:
        yield transport
    finally:
        transport.close()


def online(rank: int = 1) -> Any:
    return protocol.status_message("incarnation", rank, protocol.ONLINE, {})


class Relay:
    """Forwards connections to a port. A test can cut them off after a number of bytes, and lose all packets."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.forwarded = 0
        self.cut_after: int | None = None
        self.connections = 0
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            self.connections += 1
            self._sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 14):
                sink.sendall(content)
                self.forwarded += len(content)
                if self.cut_after is not None and self.forwarded > self.cut_after:
                    self.cut_after = None
                    self.cut()
        sink.close()


@pytest.mark.parametrize("uses_tls", [True, False])
def test_cut_connection_is_opened_again_and_the_transfer_continues(tmp_path: Path, uses_tls: bool) -> None:
    (port,) = free_ports(1)
    tls: list[dict[str, str]] = [{}, {}]
    if uses_tls:
        authority = Authority(tmp_path)
        tls = [authority.party("server"), authority.party("silo1")]
    weights = {"large": torch.randn(2_000_000)}
    relay = Relay(port)
    with open_party(0, port, **tls[0]) as server, open_party(1, relay.port, **tls[1]) as silo:
        for index, (sender, receiver) in enumerate([(silo, server), (server, silo)]):
            sender.send(online()) if sender is silo else None
            relay.cut_after = relay.forwarded + 5_000_000
            before = relay.forwarded
            if sender is silo:
                sender.send(protocol.update_message("silo", 1, 3, 10, weights))
                receiver.receive(PATIENCE)
            else:
                sender.send(protocol.task_message("server", 1, 0, 3, sender.pack(weights)))
            message = receiver.receive(PATIENCE)
            assert torch.equal(protocol.get_weights(message)["large"], weights["large"])
            assert receiver.receive(0.1) is None
            assert relay.connections == index + 2, "one cut, one new connection"
            assert relay.forwarded - before < 8_000_000 + 2_000_000, "what had arrived was not sent again"
    relay.close()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))])
def test_cuts_at_random_bytes_lose_and_repeat_no_message(seed: int) -> None:
    """Messages of 0.1 to 400 kB in both directions, while the connection breaks every 100 to 600 kB."""
    rng, (port,) = random.Random(seed), free_ports(1)
    sizes = [rng.choice([10, 5_000, 16_000, 17_000, 100_000]) for _ in range(12)]
    relay = Relay(port)
    stopped = threading.Event()

    def keep_cutting() -> None:
        while not stopped.wait(0.01):
            if relay.cut_after is None:
                relay.cut_after = relay.forwarded + rng.randrange(100_000, 600_000)

    def send_all(sender: Transport, kind: Any) -> None:
        for number, size in enumerate(sizes):
            sender.send(kind(number, {"part": torch.full((size,), float(number))}))

    def update(number: int, weights: Any) -> Any:
        return protocol.update_message("silo", 1, number, 10, weights)

    def task(number: int, weights: Any) -> Any:
        return protocol.task_message("server", 1, 0, number, weights)

    with open_party(0, port) as server, open_party(1, relay.port) as silo:
        silo.send(online())
        assert server.receive(PATIENCE) is not None
        threads = [threading.Thread(target=keep_cutting, daemon=True)]
        threads += [
            threading.Thread(target=send_all, args=pair, daemon=True) for pair in ((silo, update), (server, task))
        ]
        for thread in threads:
            thread.start()
        for receiver in (server, silo):
            for number, size in enumerate(sizes):
                message = receiver.receive(PATIENCE)
                assert message is not None
                assert protocol.get_round(message) == number, "in order, none twice"
                assert torch.equal(protocol.get_weights(message)["part"], torch.full((size,), float(number)))
        stopped.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert relay.connections > 1, "there was a cut"
        assert server.receive(0.1) is silo.receive(0.1) is None
    relay.close()


HUB = "server.hospital-a.example"


@pytest.mark.parametrize("variable", ["https_proxy", "HTTPS_PROXY"])
def test_silo_reaches_the_server_through_an_http_proxy_with_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Only the proxy knows the server's name."""
    (port,), authority = free_ports(1), Authority(tmp_path)
    proxy = Proxy(("127.0.0.1", port))
    set_proxies(monkeypatch, {variable: f"http://user:secret@{proxy.address}"})
    with (
        open_party(0, port, **authority.party("server", HUB)) as server,
        open_party(1, port, server_address=f"{HUB}:8890", **authority.party("silo1")) as silo,
    ):
        weights = {"large": torch.randn(200_000)}
        silo.send(protocol.update_message("silo", 1, 0, 10, weights))
        assert torch.equal(protocol.get_weights(server.receive(PATIENCE))["large"], weights["large"])
        server.send(protocol.finish_message("server", 1, "over"))
        assert protocol.get_reason(silo.receive(PATIENCE)) == "over"
    assert proxy.requests[0].startswith(f"CONNECT {HUB}:8890 HTTP/1.1")
    assert b64encode(b"user:secret").decode() in proxy.requests[0]
    proxy.close()


def test_refusal_of_the_proxy_is_logged_without_its_password(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = Proxy(refusal="407 Proxy Authentication Required")
    set_proxies(monkeypatch, {"https_proxy": f"http://user:secret@{proxy.address}", "no_proxy": "other.example"})
    with open_party(1, 0, server_address=f"{HUB}:8890") as silo:
        wait_until(lambda: "407" in silo.problem, "the proxy's response")
        wait_until(lambda: "407" in caplog.text, "a warning")
    assert "secret" not in caplog.text + silo.problem
    proxy.close()


@pytest.mark.parametrize(
    ("target", "variables", "expected"),
    [
        (f"{HUB}:8890", {}, None),
        (f"{HUB}:8890", {"https_proxy": "http://proxy:3128"}, "http://proxy:3128"),
        (f"{HUB}:8890", {"https_proxy": "proxy:3128"}, "http://proxy:3128"),
        (f"{HUB}:8890", {"https_proxy": "http://proxy:3128", "no_proxy": ".hospital-a.example"}, None),
        (f"{HUB}:8890", {"http_proxy": "http://proxy:3128"}, None),
        ("127.0.0.1:8890", {"https_proxy": "http://proxy:3128"}, None),
        ("[::1]:8890", {"https_proxy": "http://proxy:3128"}, None),
        ("localhost:8890", {"https_proxy": "http://proxy:3128"}, None),
        ("10.0.0.5:8890", {"https_proxy": "http://proxy:3128"}, "http://proxy:3128"),
    ],
)
def test_proxy_comes_from_the_environment_and_not_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, target: str, variables: dict[str, str], expected: str | None
) -> None:
    set_proxies(monkeypatch, variables)
    assert grpc_outbound.find_proxy(target) == expected


def test_proxy_of_another_kind_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    set_proxies(monkeypatch, {"https_proxy": "socks5://user:secret@proxy:1080"})
    with pytest.raises(UserError, match="https_proxy") as caught:
        grpc_outbound.find_proxy(f"{HUB}:8890")
    assert "secret" not in str(caught.value)


def test_silo_connects_again_to_a_restarted_server_and_sends_what_was_not_confirmed(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with open_party(1, port) as silo:
        with open_party(0, port) as server:
            silo.send(online())
            assert server.receive(PATIENCE) is not None
        thread = threading.Thread(target=lambda: silo.send(online()), daemon=True)
        thread.start()
        time.sleep(0.3)
        assert thread.is_alive()
        with open_party(0, port) as server:
            assert server.receive(PATIENCE) is not None
            thread.join(PATIENCE)
            server.send(protocol.finish_message("server", 1, "over"))
            assert protocol.get_reason(silo.receive(PATIENCE)) == "over"


def test_server_send_to_absent_silo_fails_and_notices_are_lost(caplog: pytest.LogCaptureFixture) -> None:
    with open_party(0, free_ports(1)[0], send_timeout=0.2) as server:
        with pytest.raises(ConnectionError, match=r"silo1 \(no connection for 0.2 s\)"):
            server.send(protocol.finish_message("server", 1, ""))
        server.send_nowait(protocol.heartbeat_message("server", 1))


def test_message_that_is_longer_than_the_model_is_refused() -> None:
    (port,) = free_ports(1)
    with open_party(0, port, max_message_bytes=100_000) as server, open_party(1, port) as silo:
        with pytest.raises(ConnectionError, match="at most 100000 are accepted"):
            silo.send(protocol.update_message("silo", 1, 0, 10, {"large": torch.zeros(100_000)}))
        silo.send(online())
        assert protocol.get_status(server.receive(PATIENCE))[0] == protocol.ONLINE


def test_second_process_of_a_silo_replaces_the_first_which_ends() -> None:
    (port,) = free_ports(1)
    with open_party(0, port) as server, open_party(1, port) as first:
        first.send(online())
        with open_party(1, port) as second:
            second.send(online())
            assert "another process has connected as silo1" in rejection_of(first)
            with pytest.raises(ConnectionError):
                first.send(online())
            server.send(protocol.finish_message("server", 1, "over"))
            assert second.receive(PATIENCE) is not None


def test_check_of_a_running_silo_is_rejected_and_the_silo_stays_connected() -> None:
    (port,) = free_ports(1)
    with open_party(0, port) as server, open_party(1, port) as running:
        running.send(online())
        with open_party(1, port, is_check=True) as check:
            assert "silo1 is running and connected" in rejection_of(check)
        running.send(online())
        assert [server.receive(PATIENCE) is not None for _ in range(2)] == [True, True]
    with open_party(0, port) as server, open_party(1, port, is_check=True) as check:
        check.send(online())
        assert server.receive(PATIENCE) is not None


def rejection_of(silo: Transport) -> str:
    """Why the server does not accept a silo."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            silo.receive(0.5)
        except RunStopped as error:
            return str(error)
    raise AssertionError("the silo is accepted")


def test_silo_with_unknown_rank_or_other_form_ends_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = free_ports(3)
    with open_party(0, ports[0]):
        with open_party(2, ports[0], silos=2) as silo:
            assert "silos are 1 to 1" in rejection_of(silo)
        args = SimpleNamespace(grpc_ipconfig_path=str(grpc_table(tmp_path / "grpc.csv", ports)))
        two_way = GrpcTransport(args, PartyAddress(1, 1, {0: 0, 1: 1}, 1, 60.0), SiloSettings())
        with pytest.raises(ConnectionError, match="UNIMPLEMENTED"):
            two_way.send(online())
        assert "comm_args.connection" in caplog.text
        two_way.close()
    # The server starts after the silo, so that it never sees the silo's number as its own.
    monkeypatch.setattr(grpc_outbound, "_PROTOCOL", "0")
    with open_party(1, ports[2]) as silo:
        monkeypatch.undo()
        with open_party(0, ports[2]):
            assert "version" in rejection_of(silo)
    two_way = GrpcTransport(args, PartyAddress(0, 0, {0: 0, 1: 1}, 1, 60.0), SiloSettings())
    with open_party(1, ports[0]) as silo:
        assert "comm_args.connection" in rejection_of(silo)
    two_way.close()


def credentials(authority: Authority, party: dict[str, str]) -> grpc.ChannelCredentials:
    key, certificate = (Path(party[name]).read_bytes() for name in ("tls_key", "tls_certificate"))
    return grpc.ssl_channel_credentials(authority.file.read_bytes(), key, certificate)


def connect(
    port: int, frames: list[bytes], security: Any = None, party: str = "1", protocol_number: str = "1"
) -> grpc.StatusCode:
    """Write frames to the server's port, as anybody who reaches it can; how the stream ends."""
    target = f"127.0.0.1:{port}"
    channel = grpc.secure_channel(target, security) if security else grpc.insecure_channel(target)
    done = threading.Event()

    def requests() -> Iterator[bytes]:
        yield from frames
        done.wait(0.2)

    with channel:
        metadata = (("party", party), ("process", "hostile"), ("protocol", protocol_number))
        call = channel.stream_stream(grpc_outbound._METHOD)(requests(), metadata=metadata, timeout=10)
        with contextlib.suppress(grpc.RpcError):
            for _ in call:
                continue
        done.set()
        return call.code()


def test_callers_without_the_certificate_of_a_silo_are_rejected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    (port,) = free_ports(1)
    content = status_bytes()
    begin = frame(1, len(content), content)
    with open_party(0, port, silos=2, **ours.party("server")) as server:
        second = credentials(ours, ours.party("silo2"))
        for security in (
            None,
            grpc.ssl_channel_credentials(ours.file.read_bytes()),
            credentials(ours, theirs.party("silo1")),
        ):
            assert connect(port, [begin], security) is grpc.StatusCode.UNAVAILABLE
        assert connect(port, [begin], second, party="1") is grpc.StatusCode.PERMISSION_DENIED
        assert "the certificate is issued to 127.0.0.1, silo2, not to 'silo1'" in caplog.text
        assert (
            connect(port, [begin], credentials(ours, ours.party("server")), party="0")
            is grpc.StatusCode.FAILED_PRECONDITION
        )
        assert server.receive(0.0) is None
        # It may connect under its own name, and a message under another's is dropped.
        own = encode(online(2).get_params())
        connect(port, [begin, frame(1, len(own), own, b"o" * 16)], second, party="2")
        message = server.receive(PATIENCE)
        assert protocol.get_sender(message) == 2
        assert server.receive(0.1) is None
        assert "silo2 has sent it under the sender id '1'" in caplog.text
        with open_party(1, port, silos=2, **ours.party("silo1")) as silo:
            silo.send(online())
            assert protocol.get_sender(server.receive(PATIENCE)) == 1


def frame(kind: int, number: int, data: bytes = b"", transfer: bytes = b"t" * 16) -> bytes:
    return transfers._HEADER.pack(kind, transfer, number) + data


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([b"junk"], grpc.StatusCode.CANCELLED),
        ([frame(77, 0)], grpc.StatusCode.CANCELLED),
        ([frame(1, 2**20), frame(2, 5, b"x")], grpc.StatusCode.CANCELLED),
        ([frame(1, 2**63)], grpc.StatusCode.OK),
        ([bytes(2**21)], grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
def test_hostile_stream_is_closed_and_the_silo_connects_again(
    frames: list[bytes], code: grpc.StatusCode, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = free_ports(1)
    with open_party(0, port, silos=2) as server, open_party(1, port, silos=2) as silo:
        silo.send(online())
        assert connect(port, frames, party="2") is code
        silo.send(online())
        assert [protocol.get_sender(server.receive(PATIENCE)) for _ in range(2)] == [1, 1]
        assert server.receive(0.0) is None
        assert "Traceback" not in caplog.text


@pytest.mark.parametrize("party", ["0", "2", "-1", "x", "", "9" * 30, "１"])
def test_stream_of_an_unknown_party_is_rejected(party: str) -> None:
    (port,) = free_ports(1)
    with open_party(0, port):
        if party.isascii():
            assert connect(port, [], party=party) is grpc.StatusCode.FAILED_PRECONDITION
        assert connect(port, [], protocol_number="x") is grpc.StatusCode.FAILED_PRECONDITION


def test_pickled_message_is_dropped_and_not_unpickled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (port,) = free_ports(1)
    bomb = pickle.dumps(Bomb(tmp_path / "ran"))
    with open_party(0, port) as server, open_party(1, port) as silo:
        for content in (bomb, (2).to_bytes(4, "little") + b"{}" + bomb):
            silo._link(0).send(content, 60.0)  # type: ignore[attr-defined]
        silo.send(online())
        assert server.receive(PATIENCE) is not None
        assert server.receive(0.0) is None
    assert not (tmp_path / "ran").exists()
    assert caplog.text.count("was dropped") == 2


def test_close_returns_while_nobody_listens_and_while_a_send_waits() -> None:
    (port,) = free_ports(1)
    with open_party(1, port) as silo:
        failures: list[BaseException] = []

        def send() -> None:
            try:
                silo.send(online())
            except ConnectionError as error:
                failures.append(error)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        time.sleep(0.2)
        began = time.monotonic()
        silo.close()
        assert time.monotonic() - began < 50.0, "send_timeout is longer"
        thread.join(PATIENCE)
        assert "this silo ends" in str(failures[0])


def threads_of(name: str) -> int:
    return sum(name in thread.name for thread in threading.enumerate())


def test_streams_that_are_opened_again_and_again_leave_no_threads() -> None:
    (port,) = free_ports(1)
    with open_party(0, port) as server:
        for _ in range(8):
            assert connect(port, []) is grpc.StatusCode.OK
        wait_until(lambda: threads_of("reads 1") == 0, "the reading threads have ended")
        with open_party(1, port) as silo:
            silo.send(online())
            assert server.receive(PATIENCE) is not None


def addresses(table: Path | None = None, **settings: Any) -> tuple[str, str]:
    args = SimpleNamespace(grpc_ipconfig_path=None if table is None else str(table))
    return grpc_outbound.server_addresses(args, SiloSettings(**settings))


def test_server_address_comes_from_its_setting_or_from_the_servers_row(tmp_path: Path) -> None:
    table = tmp_path / "grpc.csv"
    table.write_text("eid,rank,grpc_server_ip,grpc_server_port,ingress_ip\n0,0,10.0.0.5,8890,hub.example\n")
    assert addresses() == ("127.0.0.1:8890", "127.0.0.1:8890")
    assert addresses(table) == ("hub.example:8890", "10.0.0.5:8890")
    assert addresses(server_address="10.0.0.5:9000") == ("10.0.0.5:9000", "10.0.0.5:9000")
    assert addresses(server_address="[fd00::1]:9000") == ("[fd00::1]:9000", "[fd00::1]:9000")
    assert addresses(server_address="localhost:9000") == ("localhost:9000", "localhost:9000")
    # The own name of a host is often a loopback address.
    assert addresses(server_address="hub.example:9000") == ("hub.example:9000", "[::]:9000")
    with pytest.raises(UserError, match="server_address and grpc_ipconfig_path"):
        addresses(table, server_address="hub.example:9000")
    table.write_text("eid,rank,grpc_server_ip,grpc_server_port\n1,1,10.0.0.6,8890\n")
    with pytest.raises(UserError, match="has no line for eid 0"):
        addresses(table)


@pytest.mark.parametrize(
    "address", ["hub.example", "hub.example:", ":8890", "http://hub:8890", "fd00::1:8890", "a b:1"]
)
def test_server_address_without_host_or_port_is_an_error(address: str) -> None:
    with pytest.raises(ValueError, match="server_address"):
        SiloSettings(server_address=address)


def test_port_in_use_is_an_error() -> None:
    (port,) = free_ports(1)
    taken = pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{port}.*server_address")
    with open_party(0, port), taken, open_party(0, port):
        pass
