"""Two hosts on one machine: a network namespace each, with a name of its own that it resolves as Debian does.

A host takes its own name for 127.0.1.1, and the other's for an address on the link between them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
ADDRESSES = {"alpha": "10.77.31.1", "beta": "10.77.31.2"}
_LINKS = {"alpha": "mrtf-a", "beta": "mrtf-b"}


class TwoHosts:
    """Runs commands on either, and cuts the link."""

    def __init__(self, folder: Path, tag: str) -> None:
        self.folder = folder
        self.spaces = {host: f"{tag}-{host}" for host in ADDRESSES}
        #: What mpirun takes for ssh.
        self.agent = folder / "agent.sh"

    def make(self) -> None:
        first, second = (self.spaces[host] for host in ADDRESSES)
        for space in (first, second):
            _ip("netns", "add", space)
        _ip("link", "add", _LINKS["alpha"], "netns", first, "type", "veth", "peer", _LINKS["beta"], "netns", second)
        cases = []
        for host, space in self.spaces.items():
            _ip("-n", space, "addr", "add", f"{ADDRESSES[host]}/24", "dev", _LINKS[host])
            for link in ("lo", _LINKS[host]):
                _ip("-n", space, "link", "set", link, "up")
            known = ["127.0.0.1 localhost", f"127.0.1.1 {host}"]
            known += [f"{address} {other}" for other, address in ADDRESSES.items() if other != host]
            # `ip netns exec` shows a process this file in the place of /etc/hosts.
            place = Path("/etc/netns") / space
            place.mkdir(parents=True)
            (place / "hosts").write_text("\n".join(known) + "\n")
            cases.append(f"{host}) space={space};;")
        self.agent.write_text(
            "#!/bin/bash\nhost=$1; shift\ncase $host in " + " ".join(cases) + " esac\n"
            'exec ip netns exec "$space" unshare --uts sh -c "hostname $host; exec sh -c \\"\\$0\\"" "$*"\n'
        )
        self.agent.chmod(0o755)

    def remove(self) -> None:
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
            shutil.rmtree(Path("/etc/netns") / space, ignore_errors=True)

    def start(self, host: str, *words: str, log: Path) -> subprocess.Popen[bytes]:
        """A process on that host; what it says goes to a file."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        with log.open("wb") as output:
            command = [str(self.agent), host, " ".join(words)]
            return subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)

    def cut(self) -> None:
        _ip("-n", self.spaces["beta"], "link", "set", _LINKS["beta"], "down")

    def mend(self) -> None:
        _ip("-n", self.spaces["beta"], "link", "set", _LINKS["beta"], "up")


@contextmanager
def two_hosts(folder: Path) -> Iterator[TwoHosts]:
    """Both, while the block lasts; only root makes them."""
    hosts = TwoHosts(folder, f"mrtf{os.getpid()}")
    try:
        hosts.make()
        yield hosts
    finally:
        hosts.remove()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
