"""A small HTTP proxy, as hospitals have one between their machines and the internet.

`python -m tests.backends.cross_silo.proxy HOST PORT` runs it until it is killed.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading

import pytest


class Proxy:
    """Answers CONNECT requests and forwards to the host that they name.

    Args:
        target: forwards there instead, whatever host a request names.
        refusal: the status of every response, instead of forwarding.
        listen: host and port.
    """

    def __init__(
        self, target: tuple[str, int] | None = None, refusal: str = "", listen: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        self.requests: list[str] = []
        self._target, self._refusal = target, refusal
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(listen)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in (self._listener, *self._sockets):
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._sockets.append(near)
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += near.recv(1)
            self.requests.append(head.decode())
            if self._refusal:
                near.sendall(f"HTTP/1.1 {self._refusal}\r\n\r\n".encode())
                near.close()
                return
            host, _, port = head.split()[1].decode().rpartition(":")
            far = socket.create_connection(self._target or (host, int(port)))
            self._sockets.append(far)
            near.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            threading.Thread(target=forward, args=(far, near), daemon=True).start()
            forward(near, far)


def forward(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := source.recv(1 << 14):
            sink.sendall(content)
        sink.close()


def set_proxies(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """The environment has these variables on proxies and no others."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        for one in (name, name.upper()):
            monkeypatch.delenv(one, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


if __name__ == "__main__":
    proxy = Proxy(listen=(sys.argv[1], int(sys.argv[2])))
    threading.Event().wait()
