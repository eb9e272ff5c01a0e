"""One file an algorithm: what a client does in a round, and what the server does with what comes back.

Nothing here knows FedML or how messages travel.
"""

from __future__ import annotations

from ..errors import UserError, nearest
from .fedavg import FedAvg
from .feddf import FedDF
from .fedmmd import FedMMD
from .fedopt import FedOpt
from .fedprox import FedProx
from .mrtf import MrTF
from .scaffold import Scaffold

ALGORITHMS: dict[str, type[FedAvg]] = {
    algorithm.name: algorithm for algorithm in (FedAvg, FedProx, FedMMD, FedOpt, Scaffold, FedDF, MrTF)
}

#: Before a word of FedML's own, it asks for our version of that algorithm.
OUR_PREFIX = "mrtf:"


def algorithm_named(name: str) -> type[FedAvg]:
    """The algorithm of that name, in any case, with or without the prefix `mrtf:`.

    >>> algorithm_named("mrtf:FedAvg").name
    'FedAvg'
    """
    short = name[len(OUR_PREFIX) :] if name.lower().startswith(OUR_PREFIX) else name
    for known, algorithm in ALGORITHMS.items():
        if known.lower() == short.lower():
            return algorithm
    raise UserError(
        f"there is no algorithm {name!r} (train_args.federated_optimizer); {nearest(short, list(ALGORITHMS))}"
    )


__all__ = [
    "ALGORITHMS",
    "OUR_PREFIX",
    "FedAvg",
    "FedDF",
    "FedMMD",
    "FedOpt",
    "FedProx",
    "MrTF",
    "Scaffold",
    "algorithm_named",
]
