"""The certificate authority of a federation, which `mrtf invite` creates and the server keeps.

A folder with `key.pem` (mode 600), `certificate.pem`, `issued.jsonl` (one line per certificate) and `revoked.txt` (one
line per revoked certificate, which the running server reads). Parties' private keys are not kept here. This module
imports no FedML, and only `mrtf invite` needs it: `cryptography` is an optional package.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ....errors import UserError
from ....training.files import append_line, report_write_errors

#: The common name of the server's certificate; a silo's is `silo` and its rank.
SERVER = "server"
KEY, CERTIFICATE, ISSUED, REVOKED = "key.pem", "certificate.pem", "issued.jsonl", "revoked.txt"

_AUTHORITY_DAYS, _PARTY_DAYS = 3650, 365
#: A certificate is valid from this long before it is issued, for clocks that are slow.
_BACKDATED = datetime.timedelta(hours=1)


class Authority:
    """Issues and revokes the parties' certificates.

    Args:
        folder: of an authority that exists.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            key = serialization.load_pem_private_key((folder / KEY).read_bytes(), None)
            self.certificate = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
        except (OSError, ValueError) as error:
            raise UserError(
                f"{str(folder)!r} is not the authority of a federation ({error}); name the folder that `mrtf invite` "
                "has written (--out)"
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise UserError(f"{str(folder / KEY)!r} is not a key that `mrtf invite` has written; restore it")
        self._key = key

    @classmethod
    def create(cls, folder: Path) -> Authority:
        """A new authority, in a new folder."""
        folder.mkdir(mode=0o700)
        key, name = ec.generate_private_key(ec.SECP256R1()), _subject("mrtf federation")
        builder = _builder(name, name, key.public_key(), _AUTHORITY_DAYS, is_authority=True)
        write_key(folder / KEY, _key_pem(key))
        (folder / CERTIFICATE).write_bytes(_pem(builder.sign(key, hashes.SHA256())))
        (folder / ISSUED).touch()
        (folder / REVOKED).touch()
        return cls(folder)

    def issue(self, name: str, party: str, hosts: Iterable[str] = ()) -> tuple[bytes, bytes]:
        """A new private key and its certificate, as PEM.

        Args:
            name: of the organisation.
            party: `server`, `silo1`, `silo2` and so on: the common name, which says who speaks.
            hosts: names and addresses at which the party is reached.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(party, name), self.certificate.subject, key.public_key(), _PARTY_DAYS)
        names = [_general_name(host) for host in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        line = {
            "name": name,
            "party": party,
            "sha256": certificate.fingerprint(hashes.SHA256()).hex(),
            "expires": certificate.not_valid_after_utc.isoformat(),
        }
        append_line(self.folder / ISSUED, json.dumps(line))
        return _key_pem(key), _pem(certificate)

    def ranks(self) -> dict[str, int]:
        """The rank of each organisation that has a certificate, 0 for the server."""
        return {
            line["name"]: int(line["party"].removeprefix("silo").replace(SERVER, "0")) for line in self._read_issued()
        }

    def revoke(self, name: str) -> int:
        """Revoke all certificates that were issued to this organisation so far; how many were not revoked before."""
        listed = (self.folder / REVOKED).read_text()
        revoked = [
            line["sha256"] for line in self._read_issued() if line["name"] == name and line["sha256"] not in listed
        ]
        if revoked:
            append_line(self.folder / REVOKED, "\n".join(f"{digest} {name}" for digest in revoked))
        return len(revoked)

    def _read_issued(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in (self.folder / ISSUED).read_text().splitlines()]


def write_key(path: Path, content: bytes) -> None:
    """Write a private key that only its owner can read, in place of an earlier one."""
    temporary = path.with_name(f".{path.name}.part")
    with report_write_errors(path):
        temporary.unlink(missing_ok=True)
        # Created with its mode: a file that is restricted later could be opened before.
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        temporary.replace(path)


def _subject(common_name: str, organization: str | None = None) -> x509.Name:
    attributes = [x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)]
    if organization is not None:
        attributes.append(x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int, is_authority: bool = False
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(usage, critical=True)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
