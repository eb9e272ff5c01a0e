"""Which party a certificate speaks for: `server`, or `silo1`, `silo2` and so on by its common name or a DNS name."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from ....errors import UserError
from ....settings import SiloSettings

_COMMON_NAME, _OTHER_NAMES = "x509_common_name", "x509_subject_alternative_name"


def name_of(party: int) -> str:
    """What the certificate of the party with this id must be called.

    >>> name_of(0), name_of(2)
    ('server', 'silo2')
    """
    return f"silo{party}" if party else "server"


def certified_names(auth_context: Mapping[str, Iterable[bytes]]) -> set[str]:
    """The names in the certificate that a caller has shown."""
    shown = [*auth_context.get(_COMMON_NAME, ()), *auth_context.get(_OTHER_NAMES, ())]
    return {name.decode(errors="replace") for name in shown}


def check_own_name(settings: SiloSettings, own_id: int) -> None:
    """Refuse a certificate of another name at the start: the others would refuse every message.

    Raises:
        UserError: how it is called, and how it must be.
    """
    if settings.tls_certificate is None:
        return
    names = _names_of_own(settings)
    if name_of(own_id) not in names:
        raise UserError(
            f"comm_args.tls_certificate {settings.tls_certificate!r} is of {', '.join(sorted(names)) or 'nobody'}, but "
            f"this party is {name_of(own_id)!r}; have one signed with that common name (CN)"
        )


def _names_of_own(settings: SiloSettings) -> set[str]:
    """Python reads a certificate only when somebody shows it: so this party shows it to itself."""
    showing, seeing = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        showing.load_cert_chain(str(settings.tls_certificate), str(settings.tls_key))
        seeing.load_verify_locations(str(settings.tls_authority))
        seeing.check_hostname = False
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        shown, seen = showing.wrap_bio(there, back, server_side=True), seeing.wrap_bio(back, there)
        for _ in range(4):
            for end in (seen, shown):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        certificate: dict[str, Any] = seen.getpeercert() or {}
    except (ssl.SSLError, OSError, ValueError) as error:
        raise UserError(
            f"the files of comm_args.tls_certificate, tls_key and tls_authority do not fit together ({error}); correct "
            "them"
        ) from None
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return {*common, *(value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")}
