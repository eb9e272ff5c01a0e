"""Certificates for a test: an authority, and parties on 127.0.0.1 that it has signed."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs parties' certificates; its own is `authority.pem`."""

    def __init__(self, folder: Path, name: str = "federation") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / "authority.pem"
        certificate = self._builder(self.name, self.key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.file.write_bytes(_pem(certificate.sign(self.key, hashes.SHA256())))

    def party(self, name: str, address: str = "127.0.0.1") -> dict[str, str]:
        """The keys of comm_args for a party at an address that this authority vouches for."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        here = x509.SubjectAlternativeName([_general_name(address)])
        certificate = self._builder(subject, key.public_key()).add_extension(here, critical=False)
        files = {"tls_certificate": self.folder / f"{name}.pem", "tls_key": self.folder / f"{name}.key"}
        files["tls_certificate"].write_bytes(_pem(certificate.sign(self.key, hashes.SHA256())))
        files["tls_key"].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return {key: str(file) for key, file in files.items()} | {"tls_authority": str(self.file)}

    def _builder(self, subject: x509.Name, public_key: Any) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
        )


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
