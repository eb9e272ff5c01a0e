"""TLS that authenticates both ends of a GRPC channel.

FedML's channel is open: it neither shows nor asks for a certificate. Where `comm_args` name certificate files, every
party shows its own, and refuses a peer whose certificate the common authority has not signed.
"""

from __future__ import annotations

from pathlib import Path

import grpc

from ....errors import UserError
from ....settings import SiloSettings

_KEYS = ("tls_certificate", "tls_key", "tls_authority")


def server_credentials(settings: SiloSettings) -> grpc.ServerCredentials | None:
    """For the port that this party listens on; None where no certificate is named."""
    files = _files(settings)
    if files is None:
        return None
    certificate, key, authority = files
    return grpc.ssl_server_credentials([(key, certificate)], root_certificates=authority, require_client_auth=True)


def channel_credentials(settings: SiloSettings) -> grpc.ChannelCredentials | None:
    """For the calls that this party makes; None where no certificate is named."""
    files = _files(settings)
    if files is None:
        return None
    certificate, key, authority = files
    return grpc.ssl_channel_credentials(root_certificates=authority, private_key=key, certificate_chain=certificate)


def _files(settings: SiloSettings) -> tuple[bytes, bytes, bytes] | None:
    names = [getattr(settings, key) for key in _KEYS]
    if not any(names):
        return None
    for key, name in zip(_KEYS, names, strict=True):
        if not name:
            raise UserError(f"comm_args.{key} is not given; {', '.join(_KEYS)} belong together: all three or none")
    certificate, private, authority = (_read(key, name) for key, name in zip(_KEYS, names, strict=True))
    return certificate, private, authority


def _read(key: str, name: str) -> bytes:
    try:
        content = Path(name).expanduser().read_bytes()
    except OSError as error:
        raise UserError(f"comm_args.{key}: {name!r} cannot be read ({error.strerror}); correct it") from None
    if b"-----BEGIN" not in content:
        raise UserError(f"comm_args.{key}: {name!r} is not a PEM file; convert it with openssl")
    return content
