"""Revoked certificates: a running server refuses them from the moment that they are listed (`mrtf invite --revoke`)."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path

from .....errors import UserError

_PEM = "x509_pem_cert"
REASON = "its certificate is revoked; the server's operator can issue a new one (mrtf invite --rotate)"


class RevocationList:
    """The revoked certificates of a file, which is read again when it has changed.

    Args:
        file: one SHA-256 of a certificate per line, then anything. None: nothing is revoked.
    """

    def __init__(self, file: str | None) -> None:
        self._path = None if file is None else Path(file).expanduser()
        self._version: tuple[int, int, int] | None = None
        self._digests: frozenset[str] = frozenset()
        # At the start a missing file is a mistake in the settings; later it is one that is being replaced.
        if self._path is not None and not self._path.is_file():
            raise UserError(f"comm_args.tls_revoked: there is no file {file!r}; correct the path, or leave the key out")

    def __contains__(self, digest: str | None) -> bool:
        self._read_changes()
        return digest in self._digests

    def _read_changes(self) -> None:
        if self._path is None:
            return
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


def peer_digest(auth_context: Mapping[str, Iterable[bytes]]) -> str | None:
    """The SHA-256 of a caller's certificate; None without one."""
    return next((certificate_digest(pem) for pem in auth_context.get(_PEM, ())), None)


def certificate_digest(pem: bytes) -> str:
    """The SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` computes it."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.decode())).hexdigest()
