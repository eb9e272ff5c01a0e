"""The HTTP server of the live page: on 127.0.0.1 only, and read only."""

from __future__ import annotations

import os
import sys
import threading
import time
import webbrowser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..report.style import STYLE
from .live_run import LiveRun
from .page import live_page

ADDRESS = "127.0.0.1"
#: Tried first, so that a bookmark or a tunnel stays valid. If it is in use, any free port is taken.
DEFAULT_PORT = 8642
#: Names of this machine. A page of another site that points its own name to 127.0.0.1 (DNS rebinding) has another.
_HOSTS = {"127.0.0.1", "localhost", "[::1]"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
#: Seconds that a browser which has fetched the page recently has to fetch the last state.
_LAST_FETCH_SECONDS = 5.0
_REQUEST_SECONDS = 10.0


class WatchServer(ThreadingHTTPServer):
    """Serves the live page of one run.

    Args:
        folder: of the run.
        port: to listen on; None takes `DEFAULT_PORT` or any free port.
    """

    daemon_threads = True

    def __init__(self, folder: str | Path, port: int | None = None) -> None:
        self.live_run = LiveRun(folder)
        self.lock = threading.Lock()
        self.last_fetch = 0.0
        try:
            super().__init__((ADDRESS, DEFAULT_PORT if port is None else port), _Handler)
        except OSError as error:
            if port is not None:
                raise UserError(f"--port {port}: {error.strerror}; choose another port") from None
            super().__init__((ADDRESS, 0), _Handler)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def start(self) -> None:
        """Serve from a thread."""
        threading.Thread(target=self.serve_forever, name="watch", daemon=True).start()

    def stop(self) -> None:
        """Let an open page fetch the last state; then close the port."""
        ended = time.monotonic()
        if ended - self.last_fetch < _LAST_FETCH_SECONDS:
            while self.last_fetch < ended and time.monotonic() < ended + _LAST_FETCH_SECONDS:
                time.sleep(0.05)
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: a browser that closes its connection is not an error."""


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    server_version = "mrtf"
    sys_version = ""
    timeout = _REQUEST_SECONDS

    def do_GET(self) -> None:
        """Send one of the four files."""
        self._reply(has_body=True)

    def do_HEAD(self) -> None:
        """The same without the content."""
        self._reply(has_body=False)

    def _reply(self, has_body: bool) -> None:
        host = self.headers.get("Host", "")
        name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
        if name not in _HOSTS:
            self._send(403, "text/plain", b"this page is served to this machine only\n", has_body)
            return
        path = self.path.partition("?")[0]
        if path == "/":
            self._send(200, "text/html", self._page(), has_body)
        elif path == "/style.css":
            self._send(200, "text/css", STYLE.encode(), has_body)
        elif path == "/watch.js":
            self._send(200, "text/javascript", Path(__file__).with_name("watch.js").read_bytes(), has_body)
        elif path == "/report.html" and (report := self.server.live_run.folder / "report.html").is_file():
            self._send(200, "text/html", report.read_bytes(), has_body)
        else:
            self._send(404, "text/plain", b"not found\n", has_body)

    def _page(self) -> bytes:
        with self.server.lock:
            self.server.live_run.read()
            page = live_page(self.server.live_run).encode()
        self.server.last_fetch = time.monotonic()
        return page

    def _send(self, code: int, kind: str, content: bytes, has_body: bool) -> None:
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if has_body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not print requests."""


def open_in_browser(url: str) -> None:
    """Open the page, if this machine has a display."""
    has_display = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if has_display:
        webbrowser.open(url)


def start_page(folder: Path) -> WatchServer:
    """Serve the page of a run from a thread of the run's own process (`mrtf run --watch`); print its address."""
    server = WatchServer(folder)
    server.start()
    print(f"watch the run at {server.url}", file=sys.stderr, flush=True)
    open_in_browser(server.url)
    return server
