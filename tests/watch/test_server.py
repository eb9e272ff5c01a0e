"""The HTTP server of the live page: what it serves, and to whom."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrtf_fedml.callbacks.status import StatusFile
from mrtf_fedml.errors import UserError
from mrtf_fedml.watch.server import ADDRESS, WatchServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WatchServer]:
    StatusFile(tmp_path, rounds=3, role="simulation").close()
    with WatchServer(tmp_path, 0) as opened:
        opened.start()
        yield opened
        opened.shutdown()


def request(server: WatchServer, method: str, path: str, host: str | None = None) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection(ADDRESS, server.server_port, timeout=60)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply.status, content, dict(reply.getheaders())


@pytest.mark.parametrize("path", ["/", "/style.css", "/watch.js", "/?x=1"])
def test_page_and_its_two_files_are_served(server: WatchServer, path: str) -> None:
    code, content, headers = request(server, "GET", path)
    assert code == 200
    assert content
    assert headers["Cache-Control"] == "no-store"
    assert request(server, "HEAD", path)[:2] == (200, b"")


@pytest.mark.parametrize("path", ["/status.json", "/../status.json", "/metrics.jsonl", "/report.html", "/etc/passwd"])
def test_no_other_file_of_the_folder_is_served(server: WatchServer, path: str) -> None:
    assert request(server, "GET", path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_writing_methods_are_not_supported(server: WatchServer, method: str) -> None:
    assert request(server, method, "/")[0] == 501


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost.evil:1"])
def test_request_for_another_host_name_is_refused(server: WatchServer, host: str) -> None:
    code, content, _ = request(server, "GET", "/", host)
    assert code == 403
    assert b"<html" not in content


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1", "[::1]:80"])
def test_request_for_this_machine_is_served(server: WatchServer, host: str) -> None:
    assert request(server, "GET", "/", host)[0] == 200


def test_server_listens_on_the_loopback_address_only(server: WatchServer) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_report_is_served_when_it_exists(server: WatchServer, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("the report")
    assert request(server, "GET", "/report.html")[1] == b"the report"
    assert b'href="report.html"' in request(server, "GET", "/")[1]


def test_port_in_use_is_an_error_only_if_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StatusFile(tmp_path).close()
    with socket.socket() as other:
        other.bind((ADDRESS, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=str(port)):
            WatchServer(tmp_path, port)
        monkeypatch.setattr("mrtf_fedml.watch.server.DEFAULT_PORT", port)
        with WatchServer(tmp_path) as server:
            assert server.server_port != port
