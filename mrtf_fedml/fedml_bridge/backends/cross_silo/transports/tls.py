"""Mutual TLS for gRPC channels, the party names in certificates, and TLS to a broker or a bucket.

FedML's channel is neither encrypted nor authenticated. Where `comm_args` name certificate files, every party presents
its own, and rejects a peer whose certificate is not signed by the common authority. A certificate belongs to a party by
its common name or a DNS name: `server`, `silo1`, `silo2` and so on.
"""

from __future__ import annotations

import datetime
import os
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from .....config import SiloSettings
from .....data.sources.files import file_problem
from .....errors import UserError

_KEYS = ("tls_certificate", "tls_key", "tls_authority")
#: In place of a file: the authorities that the operating system trusts.
SYSTEM_AUTHORITIES = "system"
_COMMON_NAME, _ALTERNATIVE_NAMES = "x509_common_name", "x509_subject_alternative_name"


def server_credentials(settings: SiloSettings) -> grpc.ServerCredentials | None:
    """For the port that this party listens on; None where no certificate is configured."""
    files = _read_files(settings)
    if files is None:
        return None
    certificate, key, authority = files
    return grpc.ssl_server_credentials([(key, certificate)], root_certificates=authority, require_client_auth=True)


def channel_credentials(settings: SiloSettings) -> grpc.ChannelCredentials | None:
    """For the calls that this party makes; None where no certificate is configured."""
    files = _read_files(settings)
    if files is None:
        return None
    certificate, key, authority = files
    return grpc.ssl_channel_credentials(root_certificates=authority, private_key=key, certificate_chain=certificate)


def party_name(party: int) -> str:
    """The name that the certificate of the party with this id must have.

    >>> party_name(0), party_name(2)
    ('server', 'silo2')
    """
    return f"silo{party}" if party else "server"


def find_identity_mismatch(auth_context: Mapping[str, Iterable[bytes]], party: int) -> str | None:
    """Why a caller with this certificate cannot be the party with this id; None if it can."""
    values = [*auth_context.get(_COMMON_NAME, ()), *auth_context.get(_ALTERNATIVE_NAMES, ())]
    names = {name.decode(errors="replace") for name in values}
    if party_name(party) in names:
        return None
    return f"the certificate is issued to {', '.join(sorted(names))[:100]}, not to {party_name(party)!r}"


def check_own_certificate(settings: SiloSettings, own_id: int) -> None:
    """Check the name in this party's certificate at the start, since the others would reject every message.

    Raises:
        UserError: the certificate has another name, or the files do not belong together.
    """
    if _read_files(settings) is None:
        return
    names = read_own_certificate(settings).names
    if party_name(own_id) not in names:
        raise UserError(
            f"comm_args.tls_certificate {settings.tls_certificate!r} is issued to "
            f"{', '.join(sorted(names)) or 'nobody'}, but this party is {party_name(own_id)!r}; have one signed with "
            "that common name (CN)"
        )


@dataclass(frozen=True)
class OwnCertificate:
    """The certificate of this party: the names in it, and when it expires."""

    names: frozenset[str]
    expires: datetime.datetime


def read_own_certificate(settings: SiloSettings) -> OwnCertificate:
    """The certificate of this party, if the authority has signed it and it is valid now.

    Python parses only the certificate of a peer, so this does a handshake with itself in memory.
    """
    server_side, client_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        server_side.load_cert_chain(str(settings.tls_certificate), str(settings.tls_key))
        client_side.load_verify_locations(str(settings.tls_authority))
        client_side.check_hostname = False
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = server_side.wrap_bio(to_server, to_client, server_side=True)
        client = client_side.wrap_bio(to_client, to_server)
        for _ in range(4):
            for end in (client, server):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        certificate: dict[str, Any] = client.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        raise UserError(
            f"comm_args.tls_certificate {settings.tls_certificate!r} is not valid ({error.verify_message}); ask the "
            "server's operator for a new one, or correct tls_authority"
        ) from None
    except (ssl.SSLError, OSError, ValueError) as error:
        raise UserError(
            f"the files of comm_args.tls_certificate, tls_key and tls_authority do not belong together ({error}); "
            "correct them"
        ) from None
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    alternative = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    expires = datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), datetime.timezone.utc)
    return OwnCertificate(frozenset([*common, *alternative]), expires)


@dataclass(frozen=True)
class TlsFiles:
    """The TLS keys in FedML's configuration of a broker or a bucket.

    Attributes:
        section: their section of comm_args, for error messages.
        authority: a PEM file, or `SYSTEM_AUTHORITIES`.
        certificate_and_key: this party's, if the other side asks for one.
    """

    section: str
    authority: str
    certificate_and_key: tuple[str, str] | None

    @classmethod
    def from_config(cls, config: Mapping[str, Any], section: str) -> TlsFiles | None:
        """The files of a section of comm_args; None if it has no TLS keys."""
        for name in config:
            if str(name).lower().startswith("tls") and name not in _KEYS:
                raise UserError(
                    f"comm_args.{section} has the unknown key {name!r}; the TLS keys are {', '.join(_KEYS)}"
                )
        certificate, key, authority = (config.get(name) for name in _KEYS)
        if not (certificate or key or authority):
            return None
        if not authority:
            raise UserError(
                f"comm_args.{section} has no tls_authority; give the PEM file of the authority, or "
                f"{SYSTEM_AUTHORITIES!r} for the authorities that this machine trusts"
            )
        if bool(certificate) != bool(key):
            raise UserError(f"comm_args.{section} needs both tls_certificate and tls_key, or neither; add the other")
        pair = (os.path.expanduser(str(certificate)), os.path.expanduser(str(key))) if certificate and key else None
        return cls(section, os.path.expanduser(str(authority)), pair)

    def make_context(self) -> ssl.SSLContext:
        """A context that verifies the certificate and the host name of the other side.

        Raises:
            UserError: a file cannot be read, or the files do not belong together.
        """
        if self.authority != SYSTEM_AUTHORITIES:
            _read_pem(f"{self.section}.tls_authority", self.authority)
        for key, name in zip(_KEYS[:2], self.certificate_and_key or (), strict=False):
            _read_pem(f"{self.section}.{key}", name)
        try:
            context = ssl.create_default_context(
                cafile=None if self.authority == SYSTEM_AUTHORITIES else self.authority
            )
            if self.certificate_and_key is not None:
                context.load_cert_chain(*self.certificate_and_key)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise UserError(
                f"the files of tls_certificate, tls_key and tls_authority in comm_args.{self.section} cannot be used "
                f"({error}); correct them"
            ) from None
        return context


def _read_files(settings: SiloSettings) -> tuple[bytes, bytes, bytes] | None:
    names = [getattr(settings, key) for key in _KEYS]
    if not any(names):
        return None
    for key, name in zip(_KEYS, names, strict=True):
        if not name:
            raise UserError(f"comm_args.{key} is missing; give all of {', '.join(_KEYS)}, or none of them")
    certificate, private, authority = (_read_pem(key, name) for key, name in zip(_KEYS, names, strict=True))
    return certificate, private, authority


def _read_pem(key: str, name: str) -> bytes:
    path = Path(os.path.expanduser(name))
    if path.exists() and not path.is_file():
        raise UserError(f"comm_args.{key}: {name!r} {file_problem(path)}; correct it")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"comm_args.{key}: {name!r} cannot be read ({error.strerror}); correct it") from None
    if b"-----BEGIN" not in content:
        raise UserError(f"comm_args.{key}: {name!r} is not a PEM file; convert it with openssl")
    return content
