"""Which network interface leads to the other hosts.

Gloo takes the one that this host's own name resolves to. On Debian that is 127.0.1.1, where no other host comes.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Sequence

VARIABLE = "GLOO_SOCKET_IFNAME"
_ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR of Linux
_ANY_PORT = 9


def use_interface_to_others(own: str, hosts: Sequence[str]) -> None:
    """Tell Gloo the interface by which this host reaches the first of the others; a user's own choice stands.

    Args:
        own: this host's name.
        hosts: the names of all ranks' hosts.
    """
    others = [host for host in hosts if host != own]
    if not others or os.environ.get(VARIABLE):
        return
    name = interface_to(others[0])
    if name is not None:
        os.environ[VARIABLE] = name


def interface_to(host: str) -> str | None:
    """The interface by which packets to the host leave; None where it cannot be told.

    >>> interface_to("127.0.0.1")
    'lo'
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            # Nothing is sent: the kernel looks the route up.
            asking.connect((host, _ANY_PORT))
            here = asking.getsockname()[0]
            for _, name in socket.if_nameindex():
                if _address_of(asking, name) == here:
                    return name
        except OSError:
            return None
    return None


def _address_of(asking: socket.socket, name: str) -> str | None:
    try:
        answer = fcntl.ioctl(asking.fileno(), _ADDRESS_OF_INTERFACE, struct.pack("256s", name[:15].encode()))
    except OSError:
        return None  # it has none
    return socket.inet_ntoa(answer[20:24])
