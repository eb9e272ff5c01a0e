"""Revoked certificates: a running server refuses them from the moment that they are listed (`mrtf invite --revoke`)."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path

from .....errors import UserError

_PEM = "x509_pem_cert"


class PeerCertificates:
    """The certificate of each connected peer, and which of them are revoked.

    Args:
        file: one SHA-256 of a revoked certificate per line, then anything; it is read again when it has changed. None:
            nothing is revoked.
    """

    def __init__(self, file: str | None) -> None:
        self._path = None if file is None else Path(file).expanduser()
        self._version: tuple[int, int, int] | None = None
        self._digests: frozenset[str] = frozenset()
        self._peers: dict[int, str] = {}
        # At the start a missing file is a mistake in the settings; later it is one that is being replaced.
        if self._path is not None and not self._path.is_file():
            raise UserError(f"comm_args.tls_revoked: there is no file {file!r}; correct the path, or leave the key out")

    def record(self, party: int, auth_context: Mapping[str, Iterable[bytes]]) -> None:
        """A peer has connected with this certificate."""
        for pem in auth_context.get(_PEM, ()):
            self._peers[party] = fingerprint(pem)

    def find_revocation(self, party: int) -> str | None:
        """The reason why the peer is refused; None if its certificate is not revoked."""
        if self._peers.get(party) not in self._read_list():
            return None
        return f"the certificate of silo {party} is revoked; ask the server's operator for a new one"

    def _read_list(self) -> frozenset[str]:
        if self._path is None:
            return self._digests
        try:
            entry = self._path.stat()
            version = entry.st_ino, entry.st_mtime_ns, entry.st_size
            if version != self._version:
                lines = self._path.read_text().splitlines()
                self._digests = frozenset(line.split()[0].lower() for line in lines if line.strip())
                self._version = version
        except OSError:
            # Keep what is known: a certificate that was revoked stays revoked.
            pass
        return self._digests


def fingerprint(pem: bytes) -> str:
    """The SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` computes it."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.decode())).hexdigest()
