"""A server and hospitals behind address translations, on one machine: network namespaces.

    server 198.51.100.1 --- 198.51.100.11 router 192.168.77.1 --- 192.168.77.2 north
                         \\- 198.51.100.12 router 192.168.77.1 --- 192.168.77.2 south

A router masquerades what leaves its hospital, so that the server sees the router's address, and forwards no connection
towards the hospital. Both hospitals use the same private addresses. Needs root, iproute2 (`ip`, `tc`) and nftables
(`nft`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVER, ROUTER_INSIDE, HOSPITAL = "198.51.100.1", "192.168.77.1", "192.168.77.2"
HOSPITALS = ("north", "south")
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
    """Runs commands at the server or in a hospital, slows the links down and cuts them."""

    def __init__(self, tag: str) -> None:
        routers = [f"router-{hospital}" for hospital in HOSPITALS]
        self.spaces = {name: f"{tag}-{name}" for name in ("server", *HOSPITALS, *routers)}
        self.routers = [self.spaces[router] for router in routers]

    def make(self) -> None:
        server = self.spaces["server"]
        for space in self.spaces.values():
            _run("ip", "netns", "add", space)
            _run("ip", "-n", space, "link", "set", "lo", "up")
        # The server's end of all links is one bridge with one address.
        _run("ip", "-n", server, "link", "add", "eth", "type", "bridge")
        _set_up(server, "eth", SERVER)
        for number, (hospital, router) in enumerate(zip(HOSPITALS, self.routers, strict=True), start=1):
            outside, port = f"198.51.100.{10 + number}", f"port{number}"
            _run("ip", "link", "add", port, "netns", server, "type", "veth", "peer", _OUTSIDE, "netns", router)
            _run("ip", "-n", server, "link", "set", port, "master", "eth", "up")
            _set_up(router, _OUTSIDE, outside)
            inside = self.spaces[hospital]
            _run("ip", "link", "add", "eth", "netns", inside, "type", "veth", "peer", _INSIDE, "netns", router)
            _set_up(router, _INSIDE, ROUTER_INSIDE)
            _set_up(inside, "eth", HOSPITAL)
            _run("ip", "-n", inside, "route", "add", "default", "via", ROUTER_INSIDE)
            if number == 1:
                # The server may try to reach the hospital; the router does not forward it.
                _run("ip", "-n", server, "route", "add", "default", "via", outside)
            _run("ip", "netns", "exec", router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            words = ["ip", "netns", "exec", router, "nft", "-f", "-"]
            subprocess.run(words, input=_RULES, text=True, check=True, capture_output=True)

    def remove(self) -> None:
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], capture_output=True)

    def limit_rate(self, rate: str) -> None:
        """Let at most this many bits per second pass to and from each hospital, in each direction."""
        for router in self.routers:
            for link in (_OUTSIDE, _INSIDE):
                words = ["qdisc", "add", "dev", link, "root", "tbf", "rate", rate, "burst", "16kb", "latency", "400ms"]
                _run("tc", "-n", router, *words)

    def cut(self) -> None:
        """Lose all packets between hospitals and server; no party learns of it."""
        for router in self.routers:
            _run("ip", "netns", "exec", router, "nft", "add", "rule", "ip", "mrtf", "cut", "drop")

    def mend(self) -> None:
        for router in self.routers:
            _run("ip", "netns", "exec", router, "nft", "flush", "chain", "ip", "mrtf", "cut")

    def start(
        self, place: str, *words: str, log: Path, folder: Path | None = None, **variables: str
    ) -> subprocess.Popen[bytes]:
        """A process at the server, in a hospital or on a router, in a folder; its output goes to a file."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(_ROOT), "PYTHONWARNINGS": "ignore"}
        environment |= variables
        command = ["ip", "netns", "exec", self.spaces[place], *words]
        with log.open("wb") as output:
            return subprocess.Popen(
                command, stdout=output, stderr=output, env=environment, start_new_session=True, cwd=folder
            )

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
    """The namespaces, while the block lasts."""
    network = Nat(f"mrtf{os.getpid()}")
    try:
        network.make()
        yield network
    finally:
        network.remove()


def _set_up(space: str, link: str, address: str) -> None:
    _run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", link)
    _run("ip", "-n", space, "link", "set", link, "up")


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
