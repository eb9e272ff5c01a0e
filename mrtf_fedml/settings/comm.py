"""A run across silos: how long to wait, how few are enough, and whom to trust."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from .kinds import VALIDATED, Count, Positive


@dataclass(frozen=True, config=VALIDATED)
class SiloSettings:
    """`comm_args` of a run across silos, and of one over MPI."""

    #: Seconds that a chosen silo has for its round, training included; and after which a silo that hears nothing of
    #: the server ends. Take it well above what the slowest silo needs for a round.
    silo_timeout: Positive = 600.0
    #: Seconds that the server waits for its silos at the start, and a silo for its server.
    start_timeout: Positive = 600.0
    #: With fewer answers than this a round is not finished: the run stops and can be resumed.
    min_silos: Count = 1
    #: A silo that has sent so many messages of another form than was agreed is not chosen again; a silo whose server
    #: has sent so many ends.
    max_faults: Count = 3
    #: MPI simulation: seconds that a rank has to train one client; then the run ends and can be resumed. After a
    #: quarter of it the log names rank and client.
    rank_timeout: Positive = 3600.0
    #: GRPC: this party's certificate, a PEM file. Give all three of these keys, or none: then the channel is open to
    #: whoever reaches the port.
    tls_certificate: str | None = None
    #: GRPC: the certificate's private key, a PEM file.
    tls_key: str | None = None
    #: GRPC: the certificate of the authority that signed everybody's, a PEM file.
    tls_authority: str | None = None
