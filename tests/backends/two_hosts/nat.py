"""A server and a hospital behind an address translation, on one machine: three network namespaces.

    server 198.51.100.1 --- 198.51.100.2 router 192.168.77.1 --- 192.168.77.2 hospital

The router masquerades what leaves the hospital, so that the server sees the router's address, and forwards no
connection towards the hospital. Needs root, iproute2 (`ip`, `tc`) and nftables (`nft`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVER, ROUTER_OUTSIDE, ROUTER_INSIDE, HOSPITAL = "198.51.100.1", "198.51.100.2", "192.168.77.1", "192.168.77.2"
_OUTSIDE, _INSIDE = "outside", "inside"
_ROOT = Path(__file__).parents[3]
_RULES = f"""
table ip mrtf {{
  chain translate {{ type nat hook postrouting priority 100; oifname "{_OUTSIDE}" masquerade; }}
  chain inbound {{
    type filter hook forward priority 0;
    iifname "{_OUTSIDE}" ct state new drop
  }}
  chain cut {{ type filter hook forward priority -10; }}
}}
"""


class Nat:
    """Runs commands at the server or in the hospital, slows the link down and cuts it."""

    def __init__(self, tag: str) -> None:
        self.spaces = {name: f"{tag}-{name}" for name in ("server", "router", "hospital")}

    def make(self) -> None:
        server, router, hospital = self.spaces.values()
        for space in self.spaces.values():
            _run("ip", "netns", "add", space)
            _run("ip", "-n", space, "link", "set", "lo", "up")
        for space, link, near, far in (
            (server, _OUTSIDE, SERVER, ROUTER_OUTSIDE),
            (hospital, _INSIDE, HOSPITAL, ROUTER_INSIDE),
        ):
            _run("ip", "link", "add", "eth", "netns", space, "type", "veth", "peer", link, "netns", router)
            for place, device, address in ((space, "eth", near), (router, link, far)):
                _run("ip", "-n", place, "addr", "add", f"{address}/24", "dev", device)
                _run("ip", "-n", place, "link", "set", device, "up")
        _run("ip", "-n", hospital, "route", "add", "default", "via", ROUTER_INSIDE)
        # The server may try to reach the hospital; the router does not forward it.
        _run("ip", "-n", server, "route", "add", "default", "via", ROUTER_OUTSIDE)
        _run("ip", "netns", "exec", router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        subprocess.run(
            ["ip", "netns", "exec", router, "nft", "-f", "-"], input=_RULES, text=True, check=True, capture_output=True
        )

    def remove(self) -> None:
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], capture_output=True)

    def limit_rate(self, rate: str) -> None:
        """Let at most this many bits per second pass, in each direction."""
        for link in (_OUTSIDE, _INSIDE):
            words = ["qdisc", "add", "dev", link, "root", "tbf", "rate", rate, "burst", "16kb", "latency", "400ms"]
            _run("tc", "-n", self.spaces["router"], *words)

    def cut(self) -> None:
        """Lose all packets between hospital and server; no party learns of it."""
        _run("ip", "netns", "exec", self.spaces["router"], "nft", "add", "rule", "ip", "mrtf", "cut", "drop")

    def mend(self) -> None:
        _run("ip", "netns", "exec", self.spaces["router"], "nft", "flush", "chain", "ip", "mrtf", "cut")

    def start(self, place: str, *words: str, log: Path) -> subprocess.Popen[bytes]:
        """A process at the server or in the hospital; its output goes to a file."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(_ROOT), "PYTHONWARNINGS": "ignore"}
        command = ["ip", "netns", "exec", self.spaces[place], *words]
        with log.open("wb") as output:
            return subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)

    def reaches(self, place: str, address: str, port: int) -> bool:
        """Whether a connection from this place to an address is accepted or refused, and not lost."""
        program = f"import socket; socket.create_connection(({address!r}, {port}), 2)"
        command = ["ip", "netns", "exec", self.spaces[place], sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode == 0 or "ConnectionRefusedError" in done.stderr


def missing_tools() -> str | None:
    """What is missing on this machine; None if nothing is."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "tc", "nft") if shutil.which(name) is None]
    return f"needs {', '.join(missing)} (Debian: iproute2, nftables)" if missing else None


@contextmanager
def nat() -> Iterator[Nat]:
    """The three namespaces, while the block lasts."""
    network = Nat(f"mrtf{os.getpid()}")
    try:
        network.make()
        yield network
    finally:
        network.remove()


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
