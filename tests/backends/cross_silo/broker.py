"""A real MQTT broker: Debian's mosquitto where the system has it, else PyPI's amqtt."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.backends.cross_silo.federation import wait_until

#: Debian puts it where a user's PATH may not look.
_PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin"


@contextlib.contextmanager
def start_broker(folder: Path, port: int, mosquitto_lines: str = "allow_anonymous true\n") -> Iterator[str]:
    """The broker's name, while it listens on this port of this machine.

    Other lines of mosquitto's configuration need mosquitto.
    """
    mosquitto = find_program("mosquitto")
    if mosquitto:
        (folder / "mosquitto.conf").write_text(f"listener {port} 127.0.0.1\npersistence false\n{mosquitto_lines}")
        name, command = "mosquitto", [mosquitto, "-c", str(folder / "mosquitto.conf")]
    else:
        # In an environment of its own, made by launch/broker.sh.
        amqtt = Path(sys.prefix) / "broker" / "bin" / "amqtt"
        assert amqtt.exists(), "no MQTT broker: install mosquitto, or run launch/test.sh, which finds or installs one"
        name, command = "amqtt", [str(amqtt), "-c", str(_amqtt_file(folder, port))]
    with (folder / "broker.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(lambda: _listens(port), f"{name} listens")
            yield name
        finally:
            process.kill()
            process.wait(10)


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def find_program(name: str) -> str | None:
    """The path of mosquitto or one of its tools; None if it is not installed."""
    return shutil.which(name) or shutil.which(name, path=_PLACES)


def _amqtt_file(folder: Path, port: int) -> Path:
    file = folder / "amqtt.yaml"
    file.write_text(
        f"listeners:\n  default:\n    type: tcp\n    bind: 127.0.0.1:{port}\n"
        "plugins:\n  amqtt.plugins.authentication.AnonymousAuthPlugin:\n    allow_anonymous: true\n"
    )
    return file
