"""Headless Chromium, controlled over its DevTools protocol with sockets of the standard library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

FLAGS = (
    "--headless",
    # As root Chromium runs only without its sandbox; the pages are our own.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
SECONDS = 60


class Socket:
    """As much of RFC 6455 as DevTools needs: one text message after another, each way."""

    def __init__(self, port: int, path: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        key = base64.b64encode(os.urandom(16)).decode()
        head = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        self._socket.sendall(head.encode())
        reply = b""
        while not reply.endswith(b"\r\n\r\n"):
            reply += self._exactly(1)
        assert b" 101 " in reply.splitlines()[0], reply

    def send(self, text: str) -> None:
        content, mask = text.encode(), os.urandom(4)
        size = len(content)
        if size < 126:
            length = struct.pack("!B", 0x80 | size)
        elif size < 1 << 16:
            length = struct.pack("!BH", 0x80 | 126, size)
        else:
            length = struct.pack("!BQ", 0x80 | 127, size)
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(content))
        self._socket.sendall(b"\x81" + length + mask + masked)

    def receive(self) -> str:
        parts = []
        while True:
            first, second = self._exactly(2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack("!H", self._exactly(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", self._exactly(8))
            content = self._exactly(size)
            if first & 0x0F in (0, 1):
                parts.append(content)
                if first & 0x80:
                    return b"".join(parts).decode()

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(min(size, 1 << 20))
            assert part, "the browser has closed the connection"
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


@dataclass
class Tab:
    """A page in the browser, with its messages and requests since it was opened."""

    socket: Socket
    #: Messages of the console, of whatever level, and uncaught errors.
    messages: list[str] = field(default_factory=list)
    #: URLs that the page requested, including its own.
    requests: list[str] = field(default_factory=list)
    _calls: int = 0
    _loaded: bool = False

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a request to the browser and wait for its reply; earlier events are stored."""
        self._calls += 1
        self.socket.send(json.dumps({"id": self._calls, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self._calls:
                assert "error" not in message, message
                return message["result"]
            self._keep(message)

    def open(self, page: Path | str, width: int, dark: bool) -> None:
        """Load a file or an address at a width, in the light or the dark."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        # The last page may still be fetching, and its messages are not this page's.
        self._navigate("about:blank")
        self.messages.clear()
        self.requests.clear()
        self.call("Network.setCacheDisabled", cacheDisabled=True)
        metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])
        self._navigate(page if isinstance(page, str) else page.resolve().as_uri())

    def _navigate(self, address: str) -> None:
        self._loaded = False
        self.call("Page.navigate", url=address)
        while not self._loaded:
            self._keep(json.loads(self.socket.receive()))

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def picture(self, file: Path) -> None:
        """A PNG of the whole page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(shot["data"]))

    def _keep(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.messages.append(str(params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.messages.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True


@contextmanager
def open_browser(profile: Path) -> Iterator[Tab]:
    """A browser with a new profile in `profile`, down when the block is left."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    assert program, "no Chromium: install it, or run launch/test.sh, which finds or installs one"
    with (profile.parent / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"], stdout=log, stderr=log
        )
    try:
        port = _port(profile / "DevToolsActivePort", process)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=SECONDS) as reply:
            target = next(one for one in json.load(reply) if one["type"] == "page")
        socket_ = Socket(port, "/" + target["webSocketDebuggerUrl"].split("/", 3)[3])
        try:
            yield Tab(socket_)
        finally:
            socket_.close()
    finally:
        process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    """The browser writes down which port it took."""
    deadline = time.monotonic() + SECONDS
    while True:
        if file.exists() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        assert process.poll() is None, "the browser did not start; its log is next to its profile"
        assert time.monotonic() < deadline, "the browser did not come up"
        time.sleep(0.05)
